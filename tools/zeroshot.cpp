// `tpgm zeroshot`: class names and templates through CLIP's text tower, into a head.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "tools/command.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/core/device.h"
#include "tpgm/data/dataset.h"
#include "tpgm/data/sources/list.h"
#include "tpgm/io/file.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/weights/read.h"

namespace tpgm::tools {
namespace {

struct ZeroshotArguments {
  std::string model, checkpoint, key, classnames, templates, vocab, output, device = "auto";
  int64_t batch_size = 256;
};

std::string sentences_text(size_t count) {
  return fmt::format("{} sentences", grouped(static_cast<int64_t>(count)));
}

// True for shards, a pattern of them, or a list of images, which are not files of names.
bool is_data_file(const std::string& where) {
  const auto ending = std::filesystem::path(where).extension();
  return ending == ".tar" || ending == ".tgz" || ending == ".gz" || is_image_list(where) ||
         (where.find('{') != std::string::npos && !std::filesystem::exists(where));
}

// A data set's classes are found as every other command finds them: below its domains and splits.
std::vector<std::string> class_names_of(const std::string& where) {
  std::vector<std::string> names;
  if (is_folder(where)) {
    try {
      names = Dataset(where).classes();
    } catch (const c10::Error&) {  // folders may have names and no images yet
    }
  } else if (is_data_file(where)) {
    names = Dataset(where).classes();
    TORCH_CHECK(!names.empty(), "[zeroshot] the images of '", where, "' have no classes");
  }
  if (names.empty()) return load_class_names(where);
  for (auto& name : names) std::replace(name.begin(), name.end(), '_', ' ');
  return names;
}

// A class name that occurs twice makes two equal rows, which no image can tell apart.
void warn_of_twins(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const auto& name : names) {
    if (!seen.insert(name).second) say_line("zeroshot", fmt::format("'{}' is the name of two classes", name));
  }
}

int zeroshot(const ZeroshotArguments& args) {
  if (args.batch_size < 1) throw UsageError("--batch-size must be at least 1");
  const auto device = find_device(args.device);
  const auto names = class_names_of(args.classnames);
  AtomicFile(args.output);  // throws before the work if it cannot be written
  warn_of_twins(names);
  const Checkpoint checkpoint(args.checkpoint, args.key);
  const auto templates = find_templates(args.templates, checkpoint.metadata());
  const ModelWeights weights =
      read_weights(checkpoint, args.model.empty() ? std::nullopt : std::optional(parse_model(args.model)));
  for (const auto& note : weights.notes) say_line("zeroshot", fmt::format("'{}': {}", args.checkpoint, note));
  TORCH_CHECK(weights.has_text(), "[zeroshot] '", args.checkpoint, "', a ", weights.config.family->name,
              ", has no text tower; it takes a whole CLIP, both towers");
  const Tokenizer tokenizer = find_tokenizer(args.vocab, args.checkpoint, *weights.config.vocab);
  const auto text = make_clip_text(weights.config);
  load_state_dict(*text, weights.text(), {}, args.checkpoint);
  text->to(device);
  const at::Tensor* scale = weights.tensors.find("logit_scale");
  TORCH_CHECK(scale != nullptr, "[zeroshot] '", args.checkpoint, "' has no logit_scale");

  ZeroShotHead head;
  {
    Progress progress("tpgm zeroshot", names.size() * templates.size(), sentences_text);
    head = make_zero_shot(*text, scale->to(device, at::kFloat), tokenizer, names, templates,
                          ZeroShotOptions().batch_size(args.batch_size), progress.callback());
  }
  if (head.truncated > 0) {
    say_line("zeroshot",
             fmt::format("{} of {} are longer than {} tokens and were cut", head.truncated,
                         sentences_text(names.size() * templates.size()), *weights.config.context));
  }
  head.model = to_text(weights.config);
  save_zero_shot(head, args.output);
  fmt::print("{}\n{} classes ('{}' to '{}'), {} templates, {} features, logit scale {:.2f}\n", args.output,
             names.size(), names.front(), names.back(), templates.size(), head.weight.size(1),
             scale->exp().item<float>());
  return 0;
}

}  // namespace

Run configure_zeroshot(CLI::App& app) {
  auto args = std::make_shared<ZeroshotArguments>();
  app.add_option("--checkpoint", args->checkpoint,
                 "CLIP checkpoint with both towers: a file or folder of any layout")
      ->required();
  app.add_option("--classnames", args->classnames,
                 "Class names: a file with one per line, JSON, or a data set")
      ->required();
  app.add_option("-o,--output", args->output, "Output head: a .safetensors file")->required();
  app.add_option("--model", args->model,
                 "Name of a model in 'tpgm list models', with sizes that the checkpoint does not show "
                 "(clip-vit:heads=4,text_heads=2); default: the checkpoint's own")
      ->check(parses(parse_model));
  app.add_option("--templates", args->templates,
                 "Templates: a file with one sentence per line and {} for the class name, or one sentence; "
                 "default: the checkpoint's own, or 'a photo of a {}.'");
  app.add_option(
      "--vocab", args->vocab,
      "Vocabulary: tokenizer.json, vocab.json with merges.txt, bpe_simple_vocab_16e6.txt.gz, or their "
      "folder; default: the one beside the checkpoint, or byte-level if the model has 514 tokens");
  app.add_option("--key", args->key,
                 "Entry of a nested checkpoint to read, such as state_dict_ema; default: the usual ones");
  app.add_option("-b,--batch-size", args->batch_size, "Batch size, in sentences");
  app.add_option("--device", args->device, "Device: cpu, cuda or cuda:N (auto: cuda if available)")
      ->check(parses_as<std::optional<c10::Device>>());
  return [args] { return zeroshot(*args); };
}

}  // namespace tpgm::tools

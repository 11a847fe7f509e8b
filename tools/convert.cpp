// `tpgm convert`: any checkpoint to safetensors, with the names of any library.
#include "tpgm/checkpoints/convert.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>

#include "tools/command.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/base/shell.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/io/dtypes.h"
#include "tpgm/io/file.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/weights/read.h"
#include "tpgm/weights/save.h"

namespace tpgm::tools {
namespace {

struct ConvertArguments {
  std::string input, output, key, dtype, shard_size;
  std::vector<std::string> renames, only, exclude;
  std::string to, model;
  bool keep_prefix = false;
};

// Files that Hugging Face's tokenizers read, copied beside the weights.
constexpr std::array kCompanions{"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json",
                                 "special_tokens_map.json"};

void copy_companions(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  for (const auto* name : kCompanions) {
    if (!std::filesystem::is_regular_file(from / name, error) || std::filesystem::exists(to / name, error))
      continue;
    const MappedFile source(from / name);
    AtomicFile copy(to / name);
    copy.write(source.bytes().data(), source.size());
    copy.commit();
    fmt::print("{}\n", (to / name).string());
  }
}

// The command that makes the output, for its metadata.
std::string command_text(const Checkpoint& input, const ConvertOptions& options) {
  std::string text = fmt::format("tpgm convert {}", shell_word(name_of(input)));
  if (!input.key().empty()) text += " --key " + shell_quoted(input.key());
  if (options.dtype()) text += fmt::format(" --dtype {}", dtype_name(*options.dtype()));
  for (const auto& [from, to] : options.renames()) text += " --rename " + shell_quoted(from + "=" + to);
  for (const auto& glob : options.only()) text += " --only " + shell_quoted(glob);
  for (const auto& glob : options.exclude()) text += " --exclude " + shell_quoted(glob);
  if (options.shard_size() > 0) text += fmt::format(" --shard-size {}", options.shard_size());
  return text;
}

// Writes the names and shapes of another library.
int convert_layout(const ConvertArguments& args) {
  if (!args.renames.empty() || !args.only.empty() || !args.exclude.empty() || args.keep_prefix) {
    throw UsageError(
        "--to writes a whole model: --rename, --only, --exclude and --keep-prefix cannot be combined with "
        "it");
  }
  SaveOptions options;
  options.layout(parse_layout(args.to));
  if (!args.dtype.empty()) options.dtype(parse_dtype(args.dtype));
  if (!args.shard_size.empty()) options.shard_size(parse_bytes(args.shard_size));
  // transformers reads folders.
  const bool for_transformers =
      options.layout() == Layout::kHuggingFace && !args.output.ends_with(".safetensors");
  const bool named_folder = args.output.ends_with('/') || is_folder(args.output);
  const bool folder = named_folder || for_transformers;
  std::filesystem::path output = args.output;
  const auto suffix = output.extension();
  if (!named_folder && (for_transformers ? suffix == ".pt" || suffix == ".pth" || suffix == ".bin"
                                         : suffix != ".safetensors")) {
    throw UsageError(fmt::format("only safetensors are written: name the output '{}', not '{}'",
                                 output.replace_extension(".safetensors").string(), args.output));
  }
  const Checkpoint input(args.input, args.key);
  const ModelWeights weights =
      read_weights(input, args.model.empty() ? std::nullopt : std::optional(parse_model(args.model)));
  const auto print = [&](const std::vector<std::string>& notes) {
    for (const auto& note : notes) say_line("convert", fmt::format("'{}': {}", args.input, note));
  };
  print(weights.notes);
  Provenance provenance({&input});
  provenance.start();
  Metadata metadata = provenance.wait();
  std::string command = fmt::format("tpgm convert {} --to {}", shell_word(name_of(input)), args.to);
  for (const auto& [flag, value] : {std::pair("--key", args.key),
                                    {"--model", args.model},
                                    {"--dtype", args.dtype},
                                    {"--shard-size", args.shard_size}}) {
    if (!value.empty()) command += fmt::format(" {} {}", flag, shell_quoted(value));
  }
  keys::kCommand.set(metadata, command);
  options.metadata(metadata);
  SavedModel saved;
  const auto write = [&] { saved = save_as(weights, args.output, options); };
  folder ? with_folder(args.output, write) : write();
  print(saved.notes);
  for (const auto& file : saved.files) fmt::print("{}\n", file.string());
  if (folder && options.layout() == Layout::kHuggingFace) {
    copy_companions(input.files().front().parent_path(), args.output);
  }
  fmt::print("{} tensors, {}, {} as {} (was {})\n", saved.tensors, bytes_text(saved.bytes),
             weights.config.family->name, args.to, to_text(weights.layout));
  return 0;
}

int convert(const ConvertArguments& args) {
  if (!args.to.empty()) return convert_layout(args);
  if (!args.model.empty()) throw UsageError("--model needs --to");
  ConvertOptions options;
  options.only(args.only).exclude(args.exclude);
  if (!args.dtype.empty()) options.dtype(parse_dtype(args.dtype));
  if (!args.shard_size.empty()) options.shard_size(parse_bytes(args.shard_size));
  for (const auto& text : args.renames) options.renames().push_back(parse_pair(text));
  Checkpoint input(args.input, args.key);
  if (args.keep_prefix) input.restore_prefix();
  print_notes("convert", input);
  options.command(command_text(input, options));

  const std::filesystem::path output = args.output;
  const bool folder = args.output.ends_with('/') || is_folder(output);
  Converted result;
  const auto convert_all = [&] {
    Progress progress("tpgm convert", bytes_of(input));
    result = convert_checkpoint(input, folder ? output / "model.safetensors" : output, options,
                                progress.callback());
  };
  folder ? with_folder(output, convert_all) : convert_all();
  if (!result.overflowed.empty()) {
    say_line("convert",
             fmt::format("in {} tensors values are beyond the range of {}, first in '{}'",
                         result.overflowed.size(), args.dtype, printable(result.overflowed.front())));
  }
  for (const auto& file : result.files) fmt::print("{}\n", file.string());
  fmt::print("{} tensors, {}, from {}\n", result.tensors, bytes_text(result.bytes), input.format());
  return 0;
}

}  // namespace

Run configure_convert(CLI::App& app) {
  auto args = std::make_shared<ConvertArguments>();
  app.add_option("IN", args->input, "Checkpoint: a file or folder of any format")->required();
  app.add_option("-o,--output", args->output,
                 "Output: a .safetensors file, or a folder for model.safetensors")
      ->required();
  app.add_option("--dtype", args->dtype,
                 "Data type of floating-point tensors: fp64, fp32, fp16, bf16, fp8_e4m3, fp8_e5m2; default: "
                 "as they are")
      ->check(parses([](const std::string& text) { parse_dtype(text); }));
  app.add_option("--rename", args->renames,
                 "FROM=TO: rename tensors; a * in TO stands for what the * in FROM matched; may be repeated, "
                 "applied in order")
      ->allow_extra_args(false)
      ->check(parses(parse_pair));
  app.add_option("--only", args->only,
                 "GLOB: tensors to keep, before renaming; may be repeated; default: all")
      ->allow_extra_args(false);
  app.add_option("--exclude", args->exclude, "GLOB: tensors to leave out, before renaming; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--key", args->key,
                 "Entry of a nested checkpoint to read, such as state_dict_ema; default: the usual ones");
  app.add_option("--shard-size", args->shard_size,
                 "Write shards of at most this size (5GB) and an index; default: one file")
      ->check(parses(parse_bytes));
  app.add_option("--to", args->to,
                 "Layout to write the whole model in: tpgm, openai (also open_clip's), hf, torchvision or "
                 "timm; default: names unchanged")
      ->check(parses(parse_layout));
  app.add_option("--model", args->model,
                 "With --to: name of a model in 'tpgm list models', with sizes that the checkpoint does not "
                 "show; default: the checkpoint's own")
      ->check(parses(parse_model));
  app.add_flag("--keep-prefix", args->keep_prefix,
               "Keep a prefix 'module.', '_orig_mod.' or 'backbone.' that all names share");
  return [args] { return convert(*args); };
}

}  // namespace tpgm::tools

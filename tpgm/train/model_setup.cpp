// From options to a classifier: fresh, from a checkpoint, or from text.
#include "tpgm/train/model_setup.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/train/recipe.h"
#include "tpgm/weights/load_classifier.h"
#include "tpgm/weights/names.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

using Kind = HeadSource::Kind;

constexpr const char* kNoCheckpoint =
    "no `checkpoint`: all weights are drawn from the seed, and are their own anchor";

void add_notes(const std::string& checkpoint, const std::vector<std::string>& from,
               std::vector<std::string>& notes) {
  for (const auto& note : from) notes.push_back(fmt::format("'{}': {}", checkpoint, note));
}

std::shared_ptr<Classifier> fresh_model(const std::string& name, int64_t classes, Metadata& metadata) {
  ModelConfig config = parse_model(name);
  set_defaults(config);
  auto backbone = make_backbone(config);
  backbone->reset_parameters();
  keys::kModel.set(metadata, to_text(config));
  return std::make_shared<Classifier>(std::move(backbone), ClassifierOptions().num_classes(classes));
}

// The rows of `wanted` among the head's `known` classes.
std::shared_ptr<Classifier> with_rows(const Classifier& model, const std::vector<std::string>& known,
                                      const std::vector<std::string>& wanted, const std::string& checkpoint) {
  std::vector<int64_t> rows;
  for (const auto& name : wanted) {
    const auto found = std::find(known.begin(), known.end(), name);
    TORCH_CHECK(found != known.end(), "`head` checkpoint: '", checkpoint, "' knows no class '",
                printable(name), "'", the_nearest(name, known), ". Take a fresh head with `head` fresh");
    rows.push_back(found - known.begin());
  }
  const at::Tensor index = at::tensor(rows);
  const at::Tensor weight = model.head->weight.detach().index_select(0, index);
  const at::Tensor bias =
      model.options().bias() ? model.head->bias.detach().index_select(0, index) : at::Tensor();
  auto result = std::make_shared<Classifier>(model.backbone, weight, bias,
                                             ClassifierOptions(model.options()).num_classes(0));
  result->head->weight.set_requires_grad(model.head->weight.requires_grad());
  return result;
}

// What the classes are called in sentences.
std::vector<std::string> names_for(const TrainOptions& options, std::vector<std::string> classes) {
  if (options.classnames.empty()) {
    for (auto& name : classes) std::replace(name.begin(), name.end(), '_', ' ');
    return classes;
  }
  auto names = load_class_names(options.classnames);
  TORCH_CHECK(names.size() == classes.size(), "`classnames` '", options.classnames, "' has ", names.size(),
              " names, the data ", classes.size(), " classes");
  return names;
}

// Both towers of CLIP, from the checkpoint or fresh.
struct Towers {
  std::shared_ptr<Clip> clip;
  ModelConfig config;
  Layout layout = Layout::kTpgm;
  Metadata metadata;  // the checkpoint's
};

Towers load_towers(const TrainOptions& options, const std::optional<Checkpoint>& opened,
                   std::vector<std::string>& notes) {
  Towers result;
  if (!opened) {
    const bool text = options.head.is(Kind::kText);
    TORCH_CHECK(text && !options.model.empty(), "`head` ", to_text(options.head),
                text ? " needs a `model` of CLIP's, such as clip-vit, or a `checkpoint`"
                     : " needs a `checkpoint` of CLIP, both towers");
    result.config = parse_model(options.model);
    set_defaults(result.config);
    result.clip = make_clip(result.config);
    result.clip->reset_parameters();
    notes.emplace_back(kNoCheckpoint);
    return result;
  }
  const Checkpoint& checkpoint = *opened;
  const auto weights = read_weights(
      checkpoint, options.model.empty() ? std::nullopt : std::optional(parse_model(options.model)));
  TORCH_CHECK(weights.has_text(), "`head` ", to_text(options.head), ": '", options.checkpoint, "', a ",
              weights.config.family->name, ", has no text tower; it takes a whole CLIP, both towers");
  add_notes(options.checkpoint, weights.notes, notes);
  result.config = weights.config;
  result.layout = weights.layout;
  result.metadata = checkpoint.metadata();
  if (weights.view != ImageView()) keys::kView.set(result.metadata, weights.view);
  result.clip = make_clip(result.config);
  const auto exclude = weights.has_head() ? std::vector<std::string>{"head.*"} : std::vector<std::string>();
  load_state_dict(*result.clip, weights.tensors, exclude, options.checkpoint);
  return result;
}

// The rows of a vocabulary's embedding in the text tower of a CLIP of any layout; nothing if it has none.
std::optional<int64_t> text_vocabulary(const Checkpoint& checkpoint) {
  for (const auto& name : checkpoint.names()) {
    const bool embedding =
        name.ends_with("token_embedding.weight") || name.ends_with("text.stem.token.weight");
    if (embedding && checkpoint.entry(name).shape.size() == 2) return checkpoint.entry(name).shape[0];
  }
  return std::nullopt;
}

// Whether a text tower can read the name: a word, and neither a number nor a code of ImageNet's (n01440764).
bool is_word(const std::string& name) {
  const bool letters =
      std::any_of(name.begin(), name.end(), [](unsigned char c) { return std::isalpha(c) || c >= 0x80; });
  const bool code =
      name.size() == 9 && name[0] == 'n' &&
      std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isdigit(c); });
  return letters && !code;
}

// What `head` auto stands for.
HeadSource decide_head(const TrainOptions& options, const std::vector<std::string>& classes,
                       const std::optional<Checkpoint>& checkpoint, std::vector<std::string>& notes) {
  if (!options.head.is(Kind::kAuto)) return options.head;
  const auto vocabulary = checkpoint ? text_vocabulary(*checkpoint) : std::nullopt;
  if (!vocabulary) return {Kind::kFresh, ""};
  const auto strange = std::find_if_not(classes.begin(), classes.end(), is_word);
  std::string missing;
  if (options.classnames.empty() && strange != classes.end()) {
    missing = fmt::format("'{}' is not a word for its text tower; `classnames` names the classes",
                          printable(*strange));
  } else if (options.vocab.empty() && *vocabulary != Tokenizer::kBytes &&
             find_vocabulary(options.checkpoint).empty()) {
    missing = "there is no vocabulary beside the checkpoint; `vocab` names one";
  }
  notes.push_back(
      missing.empty()
          ? "the head is made from the class names (`head` zeroshot); `head` fresh begins at random"
          : fmt::format("the head is fresh, not from the class names: {}", missing));
  return {missing.empty() ? Kind::kZeroShot : Kind::kFresh, ""};
}

// The model that the options name, with their image size; empty if the checkpoint says what it is.
std::string decide_model(const TrainOptions& options, const std::optional<Checkpoint>& checkpoint) {
  if (!options.image_size) return options.model;
  ModelConfig model;
  if (!options.model.empty()) {
    model = parse_model(options.model);
  } else if (checkpoint) {
    const auto named = model_of(*checkpoint);
    const auto known = named ? std::nullopt : recognise(checkpoint->names());
    model.family = named ? named->family : known ? known->family : nullptr;
  }
  TORCH_CHECK(model.family && (!options.model.empty() || !model.family->is_file()),
              "`image-size` needs `model` here: what to fine-tune");
  model.image_size = options.image_size;
  return to_text(model);
}

// A head from text: made once, or in every step.
ModelSetup load_with_text(const TrainOptions& options, const std::vector<std::string>& classes,
                          c10::Device device, const std::optional<Checkpoint>& opened) {
  ModelSetup result;
  result.classes = classes;
  Towers towers = load_towers(options, opened, result.notes);
  Clip& clip = *towers.clip;
  const auto templates = find_templates(options.templates, towers.metadata);
  const auto tokenizer = find_tokenizer(options.vocab, options.checkpoint, *towers.config.vocab);
  const auto names = names_for(options, classes);
  towers.config.recompute.reset();  // says how to compute, not what
  keys::kModel.set(result.metadata, to_text(towers.config));
  keys::kLayout.set(result.metadata, to_text(towers.layout));
  keys::kTemplates.set(result.metadata, templates);
  keys::kView.copy(towers.metadata, result.metadata);
  int64_t truncated = 0;
  if (options.head.is(Kind::kText)) {
    auto [tokens, cut] = tokenize_classes(*clip.text, tokenizer, names, templates);
    truncated = cut;
    result.model = std::make_shared<Classifier>(clip, std::move(tokens));
  } else {
    clip.to(device);
    const auto made = make_zero_shot(*clip.text, clip.logit_scale.detach(), tokenizer, names, templates);
    truncated = made.truncated;
    result.model = std::make_shared<Classifier>(clip.visual, made.weight, at::Tensor(),
                                                ClassifierOptions().normalize(true));
    keys::kNormalize.set(result.metadata, true);
  }
  result.notes.push_back(
      fmt::format("{} classes from text, '{}' to '{}'", names.size(), names.front(), names.back()));
  if (truncated > 0)
    result.notes.push_back(fmt::format("{} sentences are longer than {} tokens and were cut", truncated,
                                       clip.text->options().context()));
  return result;
}

// The checkpoint's own head, or one of a file, for the classes of the data.
void match_head(const TrainOptions& options, const Dataset& data, const LoadedClassifier& loaded,
                ModelSetup& setup) {
  const auto& wanted = data.classes();
  if (options.head.is(Kind::kCheckpoint)) {
    const auto known =
        loaded.checkpoint ? keys::kClasses.of(loaded.checkpoint->metadata()) : std::vector<std::string>();
    if (!known.empty()) {
      TORCH_CHECK(
          !loaded.outputs_are_logits || wanted.size() == known.size(),
          "the script computes the logits of its ", known.size(), " classes, and the data have ",
          wanted.size(),
          ": a script cannot lose any of them; give data with all, or take a fresh head with `head` fresh");
      setup.model = with_rows(*setup.model, known, wanted, options.checkpoint);
      if (known.size() > wanted.size())
        setup.notes.push_back(
            fmt::format("the head keeps {} of its {} classes", wanted.size(), known.size()));
      return;
    }
  } else if (options.class_list.empty()) {
    if (auto names = classes_by_folder(data, loaded.class_names)) {
      setup.classes = *names;
      return;
    }
    setup.notes.emplace_back(kNoClassByFolder);
  }
  TORCH_CHECK(setup.model->num_classes() == static_cast<int64_t>(wanted.size()), "the head has ",
              setup.model->num_classes(), " classes, the data ", wanted.size(),
              ": say which is which with `class-list`, or take a fresh head with `head` fresh");
}

// A fresh head, the checkpoint's own, or one of a file.
ModelSetup load_without_text(const TrainOptions& options, const Dataset& data,
                             const std::optional<Checkpoint>& checkpoint) {
  const auto& head = options.head;
  const auto count = static_cast<int64_t>(data.classes().size());
  ModelSetup result;
  result.classes = data.classes();
  if (!checkpoint && !is_script(options.model)) {
    TORCH_CHECK(!options.model.empty(), "`model` or `checkpoint` is needed: what to fine-tune");
    TORCH_CHECK(head.is(Kind::kFresh), "`head` ", to_text(head), " needs a `checkpoint`");
    result.notes.emplace_back(kNoCheckpoint);
    result.model = fresh_model(options.model, count, result.metadata);
    return result;
  }
  LoadOptions load;
  load.opened(checkpoint);
  if (options.model.empty()) load.script(script_of_run(options.checkpoint));
  if (head.is(Kind::kFresh)) {
    load.head(Head::kFresh).classifier(ClassifierOptions().num_classes(count));
  } else if (head.is(Kind::kFile)) {
    load.head(Head::kZeroShot).head_file(head.file);
  } else {
    load.classifier(ClassifierOptions().head_name(options.head_name));
  }
  const auto loaded = load_classifier(options.model, options.checkpoint, load);
  add_notes(checkpoint ? options.checkpoint : options.model, loaded.notes, result.notes);
  result.model = loaded.model;
  result.metadata = loaded.metadata;
  result.outputs_are_logits = loaded.outputs_are_logits;
  result.fresh_head = head.is(Kind::kFresh);
  if (!result.fresh_head) match_head(options, data, loaded, result);
  return result;
}

}  // namespace

ModelSetup load_model(const TrainOptions& given, const Dataset& data, c10::Device device) try {
  const auto& wanted = data.classes();
  const auto count = static_cast<int64_t>(wanted.size());
  TORCH_CHECK(count > 0, "'", given.data_dir,
              "' has no labels; training needs classes: a folder of images for each");
  TORCH_CHECK(count > 1, "'", given.data_dir, "' has one class, '", printable(wanted.front()),
              "'; at least two are needed");
  std::optional<Checkpoint> checkpoint;
  if (!given.checkpoint.empty()) checkpoint.emplace(given.checkpoint);
  std::vector<std::string> notes;
  TrainOptions options = given;
  options.model = decide_model(given, checkpoint);
  options.head = decide_head(given, wanted, checkpoint, notes);
  const HeadSource& head = options.head;
  TORCH_CHECK(options.head_name.empty() || head.is(Kind::kCheckpoint), "`head-name` ",
              printable(options.head_name), " is for `head` checkpoint, not ", to_text(head));
  ModelSetup result;
  if (head.is(Kind::kText) || head.is(Kind::kZeroShot)) {
    result = load_with_text(options, wanted, device, checkpoint);
  } else {
    TORCH_CHECK(options.classnames.empty() && options.templates.empty() && options.vocab.empty(),
                "`classnames`, `templates` and `vocab` are for `head` zeroshot or text, not ", to_text(head));
    result = load_without_text(options, data, checkpoint);
  }
  result.head = head;
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  return result;
} catch (...) {
  rethrow_from("load_model");
}

HeadSource decided_head(const TrainOptions& options, const std::vector<std::string>& classes,
                        std::vector<std::string>& notes) try {
  if (!options.head.is(Kind::kAuto) || options.checkpoint.empty())
    return decide_head(options, classes, std::nullopt, notes);
  return decide_head(options, classes, Checkpoint(options.checkpoint), notes);
} catch (...) {
  rethrow_from("decided_head");
}

std::string model_of_run(const std::string& model, const std::filesystem::path& run) {
  if (!is_script(model)) return model;
  std::error_code error;
  ModelConfig config = parse_model(model);
  const std::filesystem::path file = run / config.file,
                              beside = run / file.filename();  // `/` keeps absolute ones
  config.file = (std::filesystem::exists(file, error) ? file : beside).string();
  return std::filesystem::exists(config.file, error) ? to_text(config) : model;
}

std::filesystem::path script_of_run(const std::filesystem::path& checkpoint) {
  if (!names_script(Checkpoint(checkpoint))) return {};
  std::error_code error;
  const bool folder = std::filesystem::is_directory(checkpoint, error);
  const auto run = folder ? checkpoint : checkpoint.parent_path();
  if (!std::filesystem::is_regular_file(run / kRunRecipe, error)) return {};
  try {
    const auto settings = load_recipe(run / kRunRecipe).settings;
    const auto model = settings.find("model");
    if (model != settings.end() && is_script(model->second))
      return parse_model(model_of_run(model->second, run)).file;
  } catch (const std::exception&) {  // then it says nothing of the checkpoint
  }
  return {};
}

void load_start(Classifier& model, const TrainOptions& options, const std::vector<std::string>& classes) try {
  // A script is the one of the model; other models are known by the checkpoint.
  const std::string model_name = is_script(options.model) ? options.model : "";
  const auto start = load_classifier(model_name, options.weights, LoadOptions());
  TORCH_CHECK(start.model->num_classes() == model.num_classes(), "`weights` '", options.weights, "' has ",
              start.model->num_classes(), " classes, the data ", model.num_classes());
  const auto theirs = keys::kClasses.of(start.checkpoint->metadata());
  TORCH_CHECK(theirs.empty() || theirs == classes, "`weights` '", options.weights,
              "' has the same number of classes in another order, or others");
  load_state_dict(model, state_dict(*start.model), {}, options.weights);
} catch (...) {
  rethrow_from("load_start");
}

std::optional<std::vector<std::string>> classes_by_folder(const Dataset& data,
                                                          std::vector<std::string> names) {
  size_t known = 0;
  const auto head_names = names;
  std::string unknown;
  for (const auto& folder : data.classes()) {
    std::string name = folder;
    std::replace(name.begin(), name.end(), '_', ' ');
    const auto found = std::find(head_names.begin(), head_names.end(), name);
    if (found == head_names.end()) {
      unknown = name;
    } else {
      names[static_cast<size_t>(found - head_names.begin())] = folder;
      ++known;
    }
  }
  if (known == 0) return std::nullopt;
  TORCH_CHECK(known == data.classes().size(), "[classes_by_folder] the head has no class '",
              printable(unknown), "', and has others of the data", the_nearest(unknown, head_names));
  return names;
}

}  // namespace tpgm

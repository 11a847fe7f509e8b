// Recognizes the model of a checkpoint, completes its sizes, and checks that every tensor is there.
#include "tpgm/weights/read.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"
#include "tpgm/io/mismatches.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/models/vit.h"
#include "tpgm/weights/config_json.h"
#include "tpgm/weights/layouts.h"
#include "tpgm/weights/preprocessing.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

std::string list(std::vector<std::string> names) {
  const size_t all = names.size();
  if (all > 5) names.resize(5);
  for (auto& name : names) name = fmt::format("'{}'", printable(name, 80));
  return fmt::format("{}{}", fmt::join(names, ", "), all > 5 ? fmt::format(" and {} more", all - 5) : "");
}

// Files from before PyTorch 0.4 have no counters of batches; nothing computes with them.
void add_counters(NamedTensors& tensors, std::vector<std::string>& notes) {
  std::vector<std::string> missing;
  const std::string variance = "running_var", counter = "num_batches_tracked";
  for (const auto& item : tensors) {
    if (!item.key().ends_with(variance)) continue;
    const std::string name = item.key().substr(0, item.key().size() - variance.size()) + counter;
    if (!tensors.contains(name)) missing.push_back(name);
  }
  for (const auto& name : missing) tensors.insert(name, at::zeros({}, at::kLong));
  if (!missing.empty())
    notes.push_back(fmt::format("{} counters '*.{}' are missing: set to 0", missing.size(), counter));
}

// Image sizes may differ: positions are resized.
void check_agreement(const ModelConfig& said, const ModelConfig& shown, const std::string& file,
                     const std::string& by_whom, const std::string& way_out) {
  std::vector<std::string> texts;
  for (const auto& [size, ours, theirs] : conflicts(said, shown)) {
    if (size == "image_size") continue;
    texts.push_back(fmt::format("{} is {} in {}, {} in the weights", size, ours, by_whom, theirs));
  }
  TORCH_CHECK(texts.empty(), "'", file, "' is a ", shown.family->name,
              " of other sizes: ", fmt::format("{}", fmt::join(texts, "; ")), "; ", way_out);
}

// Position embeddings for the image size that was asked for.
void resize(ModelWeights& weights, int64_t image_size) {
  if (weights.config.image_size == image_size) return;
  const Family& family = *weights.config.family;
  const Positions& positions = **family.positions;
  const std::string name = family.image_prefix() + positions.tensor;
  const int64_t patch = positions.pixels(weights.config);
  TORCH_CHECK(image_size % patch == 0, "image_size=", image_size, " is not a multiple of ", patch,
              ", the pixels of a position of this model");
  at::Tensor& position = weights.tensors[name];
  const int64_t before = position.size(0);
  position = resize_position(position, image_size / patch);
  weights.notes.push_back(
      fmt::format("resized the position embeddings from {} to {}, for images of {} pixels", before,
                  position.size(0), image_size));
  weights.config.image_size = image_size;
}

// A model that keeps its own names is run from its file, and no file may say by itself what is to be run.
void check_layout(const std::optional<ModelConfig>& config, const Checkpoint& checkpoint,
                  const std::string& by_whom) {
  TORCH_CHECK(!config || *config->family->recognition, "'", checkpoint.path().string(), "' is a ",
              config ? config->family->name : "", " by ", by_whom, ", '", config ? to_text(*config) : "",
              "': its tensors have names of their own, in no layout; it is run with that as `model`");
}

Recognised recognise_or_refuse(const Checkpoint& checkpoint, const std::optional<ModelConfig>& metadata) {
  auto found = recognise(checkpoint.names());
  TORCH_CHECK(found, "'", checkpoint.path().string(), "': its names, ", list(checkpoint.names()),
              ", are those of no model known here; docs/models.md lists those that are. ",
              checkpoint.format().starts_with("TorchScript")
                  ? fmt::format("It is TorchScript: give it as `model` script:{}",
                                checkpoint.files().front().string())
                  : "As TorchScript any model can be tuned: docs/howto/unknown-model.md");
  if (!metadata) return *found;
  const auto signature = [](const Family& family) {
    return *family.recognition ? (*family.recognition)->signature : "";
  };
  // A classifier's backbone does not show that it was CLIP's.
  const bool alike = signature(*found->family) == signature(*metadata->family);
  if (found->layout == Layout::kTpgm && alike) found->family = metadata->family;
  TORCH_CHECK(metadata->family == found->family, "'", checkpoint.path().string(), "' is a ",
              metadata->family->name, " by its metadata '", keys::kModel.name, "' and a ",
              found->family->name, " by its names; it was put together wrongly: save it again");
  return *found;
}

// Names may share bytes and tensors repeat their own, but a model has every element for itself.
void check_bytes(const Checkpoint& checkpoint) {
  constexpr size_t kTimes = 4, kMore = size_t{64} << 20;
  size_t room = kMore, bytes = 0;
  for (const auto& file : checkpoint.mappings()) room += kTimes * file->size();
  for (const auto& name : checkpoint.names()) {
    bytes += checkpoint.entry(name).nbytes();
    TORCH_CHECK(bytes <= room, "its tensors share bytes of the file: with '", printable(name), "' they take ",
                bytes, ", far more than it has; save it with every tensor for itself");
  }
}

void check_head(const NamedTensors& tensors, std::optional<int64_t> features) {
  const at::Tensor *weight = tensors.find("head.weight"), *bias = tensors.find("head.bias");
  TORCH_CHECK(weight != nullptr || bias == nullptr, "there is a bias of the head, and no weight");
  if (weight == nullptr) return;
  TORCH_CHECK(
      weight->dim() == 2 && weight->size(0) > 0 && weight->size(1) == features.value_or(weight->size(1)),
      "the head is ", weight->sizes(), ", expected [classes,", features.value_or(-1), "]");
  TORCH_CHECK(bias == nullptr || (bias->dim() == 1 && bias->size(0) == weight->size(0)),
              "the head's bias is ", bias->sizes(), ", its weight ", weight->sizes());
}

// Throws unless the file has every tensor of the model, in the right shape, and no other. To be asked before
// a model of these sizes is made: on kMeta it takes no memory, whatever the names of a file claim.
void check_complete(const ModelWeights& weights, const Checkpoint& checkpoint) {
  const auto& file = checkpoint.path();
  const OnDevice meta(at::kMeta);
  const auto backbone = make_backbone(weights.config);
  load_state_dict(*backbone, weights.backbone(), {}, file);
  const NamedTensors text = weights.text();
  if (!text.is_empty()) {
    load_state_dict(*make_clip_text(weights.config), text, {}, file);
    TORCH_CHECK(weights.tensors.contains("logit_scale"), "both towers are there, but no 'logit_scale'");
  }
  // A head on features of a layer in between is of another width, and our own file says so.
  const bool in_between = keys::kLayer.in(checkpoint.metadata());
  check_head(weights.tensors, in_between ? std::nullopt : std::optional(backbone->num_features()));
  const Family& family = *weights.config.family;
  for (const auto& item : weights.tensors) {
    const std::string& name = item.key();
    const bool tower = family.has_text()
                           ? name.starts_with("visual.") || name.starts_with("text.") || name == "logit_scale"
                           : !name.starts_with("head.");
    TORCH_CHECK(tower || name == "head.weight" || name == "head.bias", "the tensor for our '",
                printable(name), "' has no place in a ", family.name, "; remove it");
  }
}

// Under our names, with nothing unknown among them.
Renamed rename(const Checkpoint& checkpoint, const Recognised& recognised) {
  Renamed renamed = to_ours(checkpoint.tensors(), recognised);
  if (renamed.unknown.empty()) return renamed;
  Mismatches culprits;
  for (const auto& name : renamed.unknown) {
    culprits.add(name, fmt::format("is in the file, but not in a {} ({})", recognised.family->name,
                                   to_text(recognised.layout)));
  }
  TORCH_CHECK(false,
              culprits.text(
                  fmt::format(" ('{}')", checkpoint.path().string()),
                  "a variant that is not known here? As TorchScript any model can be tuned: docs/models.md"));
}

// A classifier of ours has its backbone's names behind "backbone.", also where that was CLIP's; its text
// tower keeps its own.
NamedTensors with_tower(const NamedTensors& tensors, const Family& family) {
  const std::string prefix = family.image_prefix();
  if (prefix.empty() || tensors.contains(prefix + (*family.recognition)->signature)) return tensors;
  NamedTensors result("Tensor");
  for (const auto& item : tensors) {
    const std::string& name = item.key();
    const bool image = !name.starts_with("head.") && !name.starts_with("text.") && name != "logit_scale";
    result.insert(image ? prefix + name : name, item.value());
  }
  return result;
}

struct BesideWeights {
  fs::path path;
  ModelConfig config;
};

// A file beside the weights that cannot be read. Other programs have files of the same names, so only those of
// the checkpoint's own layout must be as their library writes them.
void refuse_or_note(const fs::path& path, const Malformed& malformed, bool own, ModelWeights& weights) {
  if (own) refuse(path, malformed);
  auto note = fmt::format("'{}' beside it is not used: {}", path.filename().string(), malformed.reason);
  auto& notes = weights.notes;
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

// What the first config file of the family's layouts in `folder` gives; nothing if there is none, or if it
// describes another model.
std::optional<BesideWeights> read_config_file(const fs::path& folder, const Family& family,
                                              ModelWeights& weights) {
  for (const LayoutTable& table : layout_tables()) {
    const fs::path path = folder / table.config.name;
    std::error_code error;
    if (table.family != &family || table.config.name.empty() || !fs::is_regular_file(path, error)) continue;
    const MappedFile file(path);
    try {
      BesideWeights beside{path, {}};
      beside.config.family = &family;
      return table.config.read(file.bytes(), beside.config) ? std::optional(std::move(beside)) : std::nullopt;
    } catch (const Malformed& malformed) {
      refuse_or_note(path, malformed, table.layout == weights.layout, weights);
    }
  }
  return std::nullopt;
}

// Sizes that shapes do not show: from the user, else from our own metadata, else from a config file beside
// the weights, else the family's defaults.
void complete_config(ModelWeights& weights, const Checkpoint& checkpoint, const Recognised& recognised,
                     const std::optional<ModelConfig>& wanted, const std::optional<ModelConfig>& metadata) {
  const std::string file = checkpoint.path().string();
  ModelConfig& config = weights.config;
  const ModelConfig shown = config;
  if (recognised.layout == Layout::kTimm && checkpoint.contains(recognised.prefix + "fc_norm.weight"))
    config.pool = Pool::kMean;
  if (wanted) {
    check_agreement(*wanted, shown, file, "`model`", "give the family alone, or its true sizes");
    fill(config, *wanted);
  }
  if (metadata) {
    fill(config, *metadata);
  } else if (const auto beside =
                 read_config_file(checkpoint.files().front().parent_path(), *recognised.family, weights)) {
    const std::string name = fmt::format("'{}'", beside->path.filename().string());
    check_agreement(beside->config, shown, file, name, "is it of another model? Then move it away");
    TORCH_CHECK(beside->config.pool != Pool::kMean || config.pool == Pool::kMean, "'", file,
                "' takes the mean of normalized patches by its ", name,
                ", which is not known here: only the norm of their mean (fc_norm)");
    fill(config, beside->config);
  }
  // MoCo-v3 saves models of timm below this prefix.
  const bool small_moco = recognised.layout == Layout::kTimm && config.width == 384 &&
                          recognised.prefix.ends_with("base_encoder.");
  if (small_moco && !config.heads) {
    config.heads = 12;
    weights.notes.emplace_back("12 heads are assumed, as MoCo-v3's ViT-S has them; others have 6: heads=6");
  }
  const auto& sizes = config.family->sizes;
  const bool assumed = !config.activation && std::any_of(sizes.begin(), sizes.end(), [](const Size& size) {
    return size.member == Size::Member(&ModelConfig::activation);
  });
  set_defaults(config);
  // CLIP's models, and ViTs in its style (with pre_norm), have either activation; other ViTs have GELU.
  const bool quick = config.activation == Activation::kQuickGelu;
  if (assumed && (quick || config.pre_norm.value_or(false))) {
    weights.notes.push_back(
        fmt::format("{} is assumed, as {}; else give `model` {}:activation={}", to_text(*config.activation),
                    recognised.layout == Layout::kHuggingFace ? "no config.json of CLIP's is beside it"
                    : quick ? "in OpenAI's models; open_clip's own have gelu"
                            : "in most of timm's",
                    config.family->name, to_text(quick ? Activation::kGelu : Activation::kQuickGelu)));
  }
}

bool is_open(const ImageView& view) {
  return view.mean.empty() || view.std.empty() || !view.crop_pct || !view.interpolation;
}

// "mean 0.5 0.5 0.5, std 0.5 0.5 0.5, crop_pct 0.9, bicubic"; what is open is left out.
std::string describe(const ImageView& view) {
  std::vector<std::string> texts;
  if (!view.mean.empty()) texts.push_back(fmt::format("mean {}", fmt::join(view.mean, " ")));
  if (!view.std.empty()) texts.push_back(fmt::format("std {}", fmt::join(view.std, " ")));
  if (view.crop_pct) texts.push_back(fmt::format("crop_pct {:.4g}", *view.crop_pct));
  if (view.interpolation) texts.push_back(*view.interpolation);
  return fmt::format("{}", fmt::join(texts, ", "));
}

// What the first file in `folder` says that says something, those of the layout first; nothing if none does.
std::optional<std::pair<fs::path, Preprocessing>> read_preprocessing_file(const fs::path& folder,
                                                                          ModelWeights& weights) {
  auto files = preprocessing_files();
  std::stable_partition(files.begin(), files.end(),
                        [&](const PreprocessingFile& each) { return each.layout == weights.layout; });
  for (const PreprocessingFile& each : files) {
    const fs::path path = folder / each.name;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    const MappedFile file(path);
    try {
      Preprocessing found;
      if (each.read(file.bytes(), found)) return std::pair(path, std::move(found));
    } catch (const Malformed& malformed) {
      refuse_or_note(path, malformed, each.layout == weights.layout, weights);
    }
  }
  return std::nullopt;
}

// From our own metadata, else from a config file beside the weights.
void find_view(ModelWeights& weights, const Checkpoint& checkpoint, const std::optional<ModelConfig>& wanted,
               const std::optional<ModelConfig>& metadata) {
  weights.view = keys::kView.of(checkpoint.metadata());
  if (!is_open(weights.view)) return;
  const auto beside = read_preprocessing_file(checkpoint.files().front().parent_path(), weights);
  if (!beside) return;
  const auto& [path, found] = *beside;
  fill(weights.view, found.view);
  const std::string name = fmt::format("preprocessing of '{}'", path.filename().string());
  weights.notes.push_back(fmt::format("{}: {}", name, describe(found.view)));
  for (const auto& difference : found.differences)
    weights.notes.push_back(fmt::format("{}: {}", name, difference));
  const int64_t size = weights.config.image_size.value();
  const bool own_size = metadata || (wanted && wanted->image_size);
  if (!own_size && found.image_size.value_or(size) != size) {
    ModelConfig resized = wanted.value_or(ModelConfig());
    resized.family = weights.config.family;
    resized.image_size = found.image_size;
    weights.notes.push_back(
        fmt::format("{}: its images have {} pixels on a side, here {}; `model` {} takes them", name,
                    *found.image_size, size, to_text(resized)));
  }
}

ModelWeights read(const Checkpoint& checkpoint, const std::optional<ModelConfig>& wanted) {
  check_bytes(checkpoint);
  const std::optional<ModelConfig> metadata = model_of(checkpoint);
  check_layout(metadata, checkpoint, "its metadata '" + std::string(keys::kModel.name) + "'");
  check_layout(wanted, checkpoint, "`model`");
  const Recognised recognised = recognise_or_refuse(checkpoint, metadata);
  TORCH_CHECK(!wanted || wanted->family == recognised.family, "'", checkpoint.path().string(), "' is a ",
              recognised.family->name, " (layout: ", to_text(recognised.layout), "), not a ",
              wanted ? wanted->family->name : "", "; give `model` ", recognised.family->name,
              ", or leave it out");
  Renamed renamed = rename(checkpoint, recognised);
  ModelWeights result;
  result.layout = recognised.layout;
  result.tensors = with_tower(renamed.tensors, *recognised.family);
  result.notes = checkpoint.notes();
  result.notes.insert(result.notes.end(), renamed.notes.begin(), renamed.notes.end());
  add_counters(result.tensors, result.notes);
  result.config = sizes_of(*recognised.family, result.tensors);
  complete_config(result, checkpoint, recognised, wanted, metadata);
  check_complete(result, checkpoint);
  if (wanted && wanted->image_size && *recognised.family->positions) resize(result, *wanted->image_size);
  find_view(result, checkpoint, wanted, metadata);
  return result;
}

}  // namespace

NamedTensors ModelWeights::backbone() const {
  if (config.family->has_text()) return below(tensors, config.family->image_prefix());
  NamedTensors result("Tensor");
  for (const auto& item : tensors) {
    if (!item.key().starts_with("head.")) result.insert(item.key(), item.value());
  }
  return result;
}

NamedTensors ModelWeights::text() const { return below(tensors, "text."); }

void fill(ImageView& view, const ImageView& other) {
  if (view.mean.empty()) view.mean = other.mean;
  if (view.std.empty()) view.std = other.std;
  if (!view.crop_pct) view.crop_pct = other.crop_pct;
  if (!view.interpolation) view.interpolation = other.interpolation;
}

ImageView complete(ImageView view, const Family& family) {
  const auto& [mean, std] = *family.normalization;
  fill(view, {{mean.begin(), mean.end()}, {std.begin(), std.end()}, *family.crop_pct, "bicubic"});
  return view;
}

std::optional<ModelConfig> model_of(const Checkpoint& checkpoint) {
  constexpr size_t kMaxText = 1000;
  if (!keys::kModel.in(checkpoint.metadata())) return std::nullopt;
  const std::string given = keys::kModel.of(checkpoint.metadata()), text = printable(given, kMaxText);
  TORCH_CHECK(text == given, "[model_of] its metadata '", keys::kModel.name, "' is '", printable(text),
              "', which is not a model; save it again");
  return parse_model(text);
}

bool names_script(const Checkpoint& checkpoint) {
  const auto model = model_of(checkpoint);
  return model && model->family->is_file();
}

RenamedWeights rename_weights(const Checkpoint& checkpoint) try {
  const auto recognised = recognise_or_refuse(checkpoint, model_of(checkpoint));
  auto renamed = rename(checkpoint, recognised);
  RenamedWeights result{recognised.family, recognised.layout,
                        with_tower(renamed.tensors, *recognised.family)};
  add_counters(result.tensors, renamed.notes);
  return result;
} catch (...) {
  rethrow_from("rename_weights");
}

ModelWeights read_weights(const Checkpoint& checkpoint, const std::optional<ModelConfig>& wanted) try {
  const std::string file = fmt::format("'{}'", printable(checkpoint.path().string(), kMaxPath));
  try {
    return read(checkpoint, wanted);
  } catch (c10::Error& error) {
    // What went wrong further down knows no file.
    if (error.msg().find(file) == std::string::npos) error.add_context(fmt::format("in {}", file));
    throw;
  }
} catch (...) {
  rethrow_from("read_weights");
}

}  // namespace tpgm

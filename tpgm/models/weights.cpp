#include "tpgm/models/weights.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "tpgm/io/mismatches.h"
#include "tpgm/io/untrusted.h"
#include "tpgm/models/config_json.h"
#include "tpgm/models/registry.h"
#include "tpgm/models/vit.h"

namespace tpgm {
namespace {

constexpr const char* kCall = "read_weights";
constexpr size_t kMaxStages = 16;  // of a ResNet, as parse_layers has it

// Shapes by name, with an error for what is missing or has too few dimensions.
class Shapes {
 public:
  Shapes(const StateDict& tensors, std::string prefix) : tensors_(tensors), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const { return tensors_.contains(prefix_ + name); }
  int64_t size(const std::string& name, int64_t dimension, int64_t dimensions) const {
    const at::Tensor* tensor = tensors_.find(prefix_ + name);
    TORCH_CHECK(tensor != nullptr, "[", kCall, "] the tensor for our '", prefix_, name,
                "' is missing: is the checkpoint complete?");
    TORCH_CHECK(tensor->dim() == dimensions && tensor->numel() > 0, "[", kCall, "] the tensor for our '",
                prefix_, name, "' is ", fmt::format("[{}]", fmt::join(tensor->sizes(), ",")), ", expected ",
                dimensions, " dimensions and elements");
    return tensor->size(dimension);
  }
  /// Of the square of positions, before which the class token's comes.
  int64_t side(const std::string& name) const {
    const int64_t positions = size(name, 0, 2);
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions - 1))));
    TORCH_CHECK(side > 0 && side * side == positions - 1, "[", kCall, "] the tensor for our '", prefix_, name,
                "' has ", positions, " rows, expected one and a square");
    return side;
  }
  /// How many blocks there are: before + "0" + after, before + "1" + after, ...
  int64_t count(const std::string& before, const std::string& after) const {
    constexpr size_t kTensors = 10;  // that every block has at least
    size_t count = 0;
    while (has(fmt::format("{}{}{}", before, count, after))) ++count;
    TORCH_CHECK(count > 0, "[", kCall, "] the tensor for our '", prefix_, before, "0", after,
                "' is missing: is the checkpoint complete?");
    // Modules take memory, whatever their tensors, so that one name must not make a block.
    TORCH_CHECK(count <= tensors_.size() / kTensors, "[", kCall, "] there are ", count, " tensors '", prefix_,
                before, "*", after, "', but with ", tensors_.size(),
                " in all not the rest of as many blocks: is the checkpoint complete?");
    return static_cast<int64_t>(count);
  }

 private:
  const StateDict& tensors_;
  std::string prefix_;
};

void read_resnet(const Shapes& shapes, ModelConfig& config) {
  const bool clip = config.family == Family::kClipResNet;
  config.channels = shapes.size("stem.conv1.weight", 1, 4);
  config.width = shapes.size(clip ? "stem.conv3.weight" : "stem.conv1.weight", 0, 4);
  std::vector<int64_t> layers;
  do {
    layers.push_back(shapes.count(fmt::format("layer{}.", layers.size() + 1), ".conv1.weight"));
  } while (layers.size() < kMaxStages &&
           shapes.has(fmt::format("layer{}.0.conv1.weight", layers.size() + 1)));
  config.layers = fmt::format("{}", fmt::join(layers, "-"));
  if (clip) {
    config.image_size = shapes.side("pool.position") << (layers.size() + 1);
    config.embedding = shapes.size("pool.c_proj.weight", 0, 2);
  } else {
    config.block = shapes.has("layer1.0.conv3.weight") ? "bottleneck" : "basic";
    config.stem = shapes.size("stem.conv1.weight", 2, 4) == 3 ? "small" : "imagenet";
  }
}

void read_vit(const Shapes& shapes, ModelConfig& config) {
  config.width = shapes.size("stem.patch.weight", 0, 4);
  config.channels = shapes.size("stem.patch.weight", 1, 4);
  config.patch = shapes.size("stem.patch.weight", 2, 4);
  config.image_size = shapes.side("stem.position") * *config.patch;
  config.depth = shapes.count("blocks.", ".norm1.weight");
  config.mlp = shapes.size("blocks.0.mlp.fc1.weight", 0, 2);
  if (config.family == Family::kVit) {
    config.pre_norm = shapes.has("stem.norm.weight");
    config.patch_bias = shapes.has("stem.patch.bias");
  } else {
    config.embedding = shapes.has("projection.weight") ? shapes.size("projection.weight", 0, 2) : 0;
  }
}

void read_text(const Shapes& shapes, ModelConfig& config) {
  config.vocab = shapes.size("stem.token.weight", 0, 2);
  config.text_width = shapes.size("stem.token.weight", 1, 2);
  config.context = shapes.size("stem.position", 0, 2);
  config.text_depth = shapes.count("blocks.", ".norm1.weight");
  config.text_mlp = shapes.size("blocks.0.mlp.fc1.weight", 0, 2);
}

std::string list(std::vector<std::string> names) {
  const size_t all = names.size();
  if (all > 5) names.resize(5);
  for (auto& name : names) name = fmt::format("'{}'", printable(name, 80));
  return fmt::format("{}{}", fmt::join(names, ", "), all > 5 ? fmt::format(" and {} more", all - 5) : "");
}

StateDict below(const StateDict& tensors, const std::string& prefix) {
  StateDict result("Tensor");
  for (const auto& item : tensors) {
    if (item.key().starts_with(prefix)) result.insert(item.key().substr(prefix.size()), item.value());
  }
  return result;
}

// Files from before PyTorch 0.4 have no counters of batches; nothing computes with them.
void add_counters(StateDict& tensors, std::vector<std::string>& notes) {
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

void check_agreement(const ModelConfig& wanted, const ModelConfig& found, const std::string& file,
                     const std::string& whose) {
  std::vector<std::string> texts;
  for (const auto& [size, ours, theirs] : conflicts(wanted, found)) {
    if (size == "image_size") continue;
    texts.push_back(fmt::format("{} is {} in {}, {} in the weights", size, ours, whose, theirs));
  }
  TORCH_CHECK(texts.empty(), "[", kCall, "] '", file, "' is a ", to_text(found.family),
              " of other sizes: ", fmt::format("{}", fmt::join(texts, "; ")));
}

// Position embeddings for the image size that was asked for.
void resize(ModelWeights& weights, int64_t image_size) {
  if (weights.config.image_size == image_size) return;
  const bool resnet = is_resnet(weights.config.family);
  const std::string name = fmt::format("{}{}", is_clip(weights.config.family) ? "visual." : "",
                                       resnet ? "pool.position" : "stem.position");
  const int64_t patch =
      resnet ? int64_t{2} << parse_layers(*weights.config.layers).size() : *weights.config.patch;
  TORCH_CHECK(image_size % patch == 0, "[", kCall, "] image_size=", image_size, " is no multiple of ", patch,
              ", the pixels of a position of this model");
  at::Tensor& position = weights.tensors[name];
  const int64_t before = position.size(0);
  position = resize_position(position, image_size / patch);
  weights.notes.push_back(
      fmt::format("resized the position embeddings from {} to {}, for images of {} pixels", before,
                  position.size(0), image_size));
  weights.config.image_size = image_size;
}

Recognised recognise_or_refuse(const Checkpoint& checkpoint, const std::optional<ModelConfig>& metadata) {
  auto found = recognise(checkpoint.names());
  TORCH_CHECK(found, "[", kCall, "] '", checkpoint.path().string(), "': its names, ",
              list(checkpoint.names()),
              ", are those of no model known here; see 'tpgm list models'. Any other can come as "
              "TorchScript: --model "
              "script:FILE");
  // A classifier's backbone does not show that it was CLIP's.
  const bool alike = metadata && is_resnet(found->family) == is_resnet(metadata->family);
  if (found->layout == Layout::kTpgm && alike) found->family = metadata->family;
  TORCH_CHECK(!metadata || metadata->family == found->family, "[", kCall, "] '", checkpoint.path().string(),
              "' is a ", to_text(metadata->family), " by its metadata 'tpgm.model' and a ",
              to_text(found->family), " by its names; it was put together wrongly: save it again");
  return *found;
}

std::optional<ModelConfig> metadata_of(const Checkpoint& checkpoint) {
  constexpr size_t kMaxText = 1000;
  const auto found = checkpoint.metadata().find("tpgm.model");
  if (found == checkpoint.metadata().end()) return std::nullopt;
  const std::string text = printable(found->second, kMaxText);
  TORCH_CHECK(text == found->second, "[", kCall, "] its metadata 'tpgm.model' is '", printable(text),
              "', which is no model; save it again");
  return parse_model(text);
}

// Names may share bytes and tensors repeat their own, but a model has every element for itself.
void check_bytes(const Checkpoint& checkpoint) {
  constexpr size_t kTimes = 4, kMore = size_t{64} << 20;
  size_t room = kMore, bytes = 0;
  for (const auto& file : checkpoint.mappings()) room += kTimes * file->size();
  for (const auto& name : checkpoint.names()) {
    bytes += checkpoint.entry(name).nbytes();
    TORCH_CHECK(bytes <= room, "[", kCall, "] its tensors share bytes of the file: with '", printable(name),
                "' they take ", bytes, ", far more than it has; save it with every tensor for itself");
  }
}

// Throws unless the file has every tensor of the model, in the right shape, and no other. To be asked before
// a model of these sizes is made: on kMeta it takes no memory, whatever the names of a file claim.
void check_complete(const ModelWeights& weights, const std::filesystem::path& file) {
  const OnDevice meta(at::kMeta);
  load_state_dict(*make_backbone(weights.config), weights.backbone(), {}, file);
  const StateDict text = weights.text();
  if (!text.is_empty()) load_state_dict(*make_clip_text(weights.config), text, {}, file);
  const bool clip = is_clip(weights.config.family);
  for (const auto& item : weights.tensors) {
    const std::string& name = item.key();
    const bool tower = clip
                           ? name.starts_with("visual.") || name.starts_with("text.") || name == "logit_scale"
                           : !name.starts_with("head.");
    TORCH_CHECK(tower || name == "head.weight" || name == "head.bias", "[", kCall, "] the tensor for our '",
                printable(name), "' has no place in a ", to_text(weights.config.family), "; remove it");
  }
}

ModelWeights read(const Checkpoint& checkpoint, const std::optional<ModelConfig>& wanted) {
  const std::string file = checkpoint.path().string();
  check_bytes(checkpoint);
  const std::optional<ModelConfig> metadata = metadata_of(checkpoint);
  const Recognised recognised = recognise_or_refuse(checkpoint, metadata);
  TORCH_CHECK(!wanted || wanted->family == recognised.family, "[", kCall, "] '", file, "' is a ",
              to_text(recognised.family), " (layout: ", to_text(recognised.layout), "), not a ",
              wanted ? to_text(wanted->family) : "", "; give --model ", to_text(recognised.family),
              " or one of its sizes, see 'tpgm list models'");

  Renamed renamed = to_ours(checkpoint.tensors(), recognised);
  if (!renamed.unknown.empty()) {
    Mismatches culprits;
    for (const auto& name : renamed.unknown) {
      culprits.add(name, fmt::format("is in the file, but not in a {} ({})", to_text(recognised.family),
                                     to_text(recognised.layout)));
    }
    TORCH_CHECK(
        false,
        culprits.text(kCall, fmt::format(" ('{}')", file),
                      "a variant that is not supported? It can come as TorchScript: --model script:FILE"));
  }
  ModelWeights result;
  result.layout = recognised.layout;
  result.notes = std::move(renamed.notes);
  const bool bare_tower = recognised.layout == Layout::kTpgm && is_clip(recognised.family) &&
                          !renamed.tensors.contains("visual.stem.conv1.weight") &&
                          !renamed.tensors.contains("visual.stem.patch.weight");
  for (auto& item : renamed.tensors) {
    const bool tower = bare_tower && !item.key().starts_with("head.");
    result.tensors.insert(tower ? "visual." + item.key() : item.key(), item.value());
  }
  add_counters(result.tensors, result.notes);

  result.config = sizes_of(recognised.family, result.tensors);
  if (const auto beside = read_config_json(checkpoint.files().front().parent_path(), recognised.family)) {
    check_agreement(beside->config, result.config, file,
                    fmt::format("'{}'", beside->path.filename().string()));
    fill(result.config, beside->config);
  }
  if (metadata) fill(result.config, *metadata);
  if (recognised.layout == Layout::kTimm) {
    const bool mean = checkpoint.contains(recognised.prefix + "fc_norm.weight");
    if (mean) result.config.pool = "mean";
  }
  if (wanted) {
    check_agreement(*wanted, result.config, file, "--model");
    fill(result.config, *wanted);
  }
  const bool guessed = is_clip(recognised.family) && !result.config.activation;
  set_defaults(result.config);
  if (guessed)
    result.notes.push_back("OpenAI's quick_gelu is assumed; for open_clip's own models give activation=gelu");
  check_complete(result, checkpoint.path());
  if (wanted && wanted->image_size && (is_clip(recognised.family) || !is_resnet(recognised.family))) {
    resize(result, *wanted->image_size);
  }
  return result;
}

}  // namespace

StateDict ModelWeights::backbone() const {
  if (is_clip(config.family)) return below(tensors, "visual.");
  StateDict result("Tensor");
  for (const auto& item : tensors) {
    if (!item.key().starts_with("head.")) result.insert(item.key(), item.value());
  }
  return result;
}

StateDict ModelWeights::text() const { return below(tensors, "text."); }

ModelConfig sizes_of(Family family, const StateDict& tensors) {
  ModelConfig config;
  config.family = family;
  const Shapes visual(tensors, is_clip(family) ? "visual." : "");
  is_resnet(family) ? read_resnet(visual, config) : read_vit(visual, config);
  const Shapes text(tensors, "text.");
  if (is_clip(family) && text.has("stem.token.weight")) read_text(text, config);
  return config;
}

ModelWeights read_weights(const Checkpoint& checkpoint, const std::optional<ModelConfig>& wanted) {
  const std::string file = fmt::format("'{}'", printable(checkpoint.path().string(), kMaxPath));
  try {
    return read(checkpoint, wanted);
  } catch (c10::Error& error) {
    // What went wrong further down knows no file.
    if (error.msg().find(file) == std::string::npos) error.add_context(fmt::format("in {}", file));
    throw;
  }
}

}  // namespace tpgm

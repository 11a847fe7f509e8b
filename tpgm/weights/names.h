// The layouts of other libraries: recognizes the names of a checkpoint, and converts names and shapes of
// tensors to ours and back.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/base/text.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/models/config.h"

namespace tpgm {

enum class Layout {
  kTpgm,         // ours: stem.*, blocks.* or layer1.*, norm, projection; head; CLIP: visual.*, text.*
  kOpenAi,       // CLIP as OpenAI and open_clip save it
  kHuggingFace,  // transformers' CLIPModel, CLIPVisionModel, CLIPVisionModelWithProjection
  kTorchvision,  // ResNet (timm's too) and ViT
  kTimm,         // ViT; MoCo-v3's and MAE's
};

template <>
struct Keywords<Layout> {
  static constexpr std::pair<Layout, const char*> all[] = {{Layout::kTpgm, "tpgm"},
                                                           {Layout::kOpenAi, "openai"},
                                                           {Layout::kHuggingFace, "hf"},
                                                           {Layout::kTorchvision, "torchvision"},
                                                           {Layout::kTimm, "timm"}};
};
/// The inverse of to_text(); throws, with the known layouts, for other text.
Layout parse_layout(const std::string& text);
/// The layouts that models of a family come in, ours first; none for models that keep their own names.
std::vector<Layout> layouts_of(const Family& family);

/// What the names of a checkpoint show.
struct Recognised {
  Layout layout;
  const Family* family;
  /// The names lie below it: "base_encoder." of MoCo-v3, "model." of Lightning. Often empty.
  std::string prefix;
  /// A prefix that the file leaves out of its names: transformers 5 omits "vision_model.".
  std::string missing;
};
/// Nothing if no layout fits.
std::optional<Recognised> recognise(const std::vector<std::string>& names);

struct Renamed {
  NamedTensors tensors{"Tensor"};
  /// Names that have no place in a model and are known to be left over from training or saving, as globs
  /// with their number, for the user to read: "dropped 6 of 'fc.*', a projection head".
  std::vector<std::string> notes;
  /// Names that mean nothing in this layout.
  std::vector<std::string> unknown;
};
/// Names and shapes of `layout` → ours. Nothing is computed but q, k, v stacked and transposed views.
Renamed to_ours(const NamedTensors& tensors, const Recognised& recognised);

/// Ours → names and shapes of `layout`; `notes` and `unknown` as above. Throws if the family has no such
/// layout.
Renamed from_ours(const NamedTensors& tensors, const ModelConfig& config, Layout layout);

}  // namespace tpgm

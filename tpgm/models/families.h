// The table of families (architectures): one row each, with everything that the rest of the program needs to
// know about it. Code outside the table decides by the members of a row, never by the name of a family.
#pragma once

#include <torch/types.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tpgm/models/backbone.h"
#include "tpgm/models/clip.h"
#include "tpgm/models/config.h"
#include "tpgm/models/shapes.h"

namespace tpgm {

/// A member without a default: a row that leaves it out does not compile.
template <typename Value>
class Required {
 public:
  Required() = delete;
  template <typename Given>
    requires(std::convertible_to<Given, Value> && !std::same_as<std::remove_cvref_t<Given>, Required>)
  Required(Given&& given) : value_(std::forward<Given>(given)) {}
  operator const Value&() const { return value_; }
  const Value& operator*() const { return value_; }
  const Value* operator->() const { return &value_; }

 private:
  Value value_;
};

/// A size of the models of a family, which users set as name=value.
struct Size {
  using Member = std::variant<std::optional<int64_t> ModelConfig::*, std::optional<double> ModelConfig::*,
                              std::optional<bool> ModelConfig::*, std::optional<std::string> ModelConfig::*,
                              std::optional<BlockType> ModelConfig::*, std::optional<Stem> ModelConfig::*,
                              std::optional<Activation> ModelConfig::*, std::optional<Pool> ModelConfig::*>;
  const char* name;
  const char* help;
  Member member;
  void (*check)(const std::string& text) = nullptr;  ///< for text: throws for wrong values
  int64_t least = 1, most = 1 << 20;                 ///< for whole numbers
};

/// How to recognize a checkpoint of the family under our names, and how to read its sizes. In a family with a
/// text tower these are the names below "visual.".
struct Recognition {
  std::string signature;  ///< a tensor of every model of this architecture, and of no other
  /// Sets the sizes that follow from shapes, and leaves the others open.
  void (*read_sizes)(const Shapes& shapes, ModelConfig& config);
};

/// Position embeddings [1 + side², width], which are resized for images of another size.
struct Positions {
  std::string tensor;                            ///< the name in the image tower
  int64_t (*pixels)(const ModelConfig& config);  ///< how many pixels on a side one position covers
};

/// Mean and standard deviation per channel, for pixels in 0..1.
struct Normalization {
  std::array<double, 3> mean, std;
};

/// The Python library with the same models, which `tpgm bench step` measures for comparison.
struct Library {
  std::string module, layout;  ///< the module to import; the layout of its weights (parse_layout())
};

struct Family {
  /// The name that users write before a colon: "vit".
  std::string name;
  /// In the order in which users see them. image_size and channels are required.
  std::vector<Size> sizes;
  /// Sets every open size to its default. Throws for a size without one, such as the heads of a width that is
  /// not a multiple of 64.
  Required<void (*)(ModelConfig&)> set_defaults;
  /// Makes the image tower of a config without open sizes. Parameters are not initialized.
  Required<std::shared_ptr<Backbone> (*)(const ModelConfig&)> make_backbone;
  /// Makes the text tower; null: the family has none.
  Required<std::shared_ptr<ClipText> (*)(const ModelConfig&)> make_text;
  /// Nothing for a family whose models keep their own names of tensors (TorchScript).
  Required<std::optional<Recognition>> recognition;
  /// Nothing for a family without position embeddings, or that cannot resize them.
  Required<std::optional<Positions>> positions;
  /// The defaults of preprocessing: the normalization of pixels, and the share of the resized image's shorter
  /// side that is kept.
  Required<Normalization> normalization;
  Required<double> crop_pct;
  /// Whether training is faster in channels-last (NHWC): the default of `channels-last`.
  Required<bool> channels_last;
  /// Nothing if no library has these models.
  Required<std::optional<Library>> library;
  /// For a family whose models are files: what the FILE of "script:FILE" must be, for help and errors. Empty:
  /// models are made from sizes.
  Required<std::string> file;

  bool has_text() const { return *make_text != nullptr; }
  bool is_file() const { return !file->empty(); }
  /// The prefix of the image tower's names in a checkpoint.
  std::string image_prefix() const { return has_text() ? "visual." : ""; }
};

/// All families, in the order in which users see them. References to rows stay valid.
const std::deque<Family>& families();
/// Throws for an unknown name, and suggests the nearest.
const Family& find_family(const std::string& name);

/// Adds a row until the program ends; parse_model(), checkpoints, training and `tpgm list` then know the
/// family. Throws if the name is taken or if something is missing in the row. Call it before other threads
/// use models.
const Family& add_family(Family family);

/// Calls visit(name, help, member of each config...) for each size of the family.
template <typename Visit, typename... Configs>
void visit_sizes(const Family& family, Visit&& visit, Configs&... configs) {
  for (const Size& size : family.sizes) {
    std::visit([&](const auto member) { visit(size.name, size.help, (configs.*member)...); }, size.member);
  }
}

/// Reads the sizes that follow from the shapes of tensors under our names. Of CLIP it reads the text tower,
/// too, if it is there.
ModelConfig sizes_of(const Family& family, const NamedTensors& tensors);

}  // namespace tpgm

// The architectures: one row for each, with everything that the rest of the program asks about it. Nothing
// outside this table decides by a family's name what a model is.
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

/// A member that every row has to give: a row without it does not compile.
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

/// A size that the models of a family have, and that users set as name=value.
struct Size {
  using Member = std::variant<std::optional<int64_t> ModelConfig::*, std::optional<double> ModelConfig::*,
                              std::optional<bool> ModelConfig::*, std::optional<std::string> ModelConfig::*>;
  const char* name;
  const char* help;
  Member member;
  std::vector<std::string> choices = {};             ///< of a text; empty: any
  void (*check)(const std::string& text) = nullptr;  ///< of a text; throws
  int64_t least = 1, most = 1 << 20;                 ///< of a whole number
};

/// How a checkpoint with our names shows that it is of the family, and of which sizes. Where there is a text
/// tower, names are those below "visual.".
struct Recognition {
  std::string signature;  ///< a tensor that every model has, and no model of another architecture
  void (*read_sizes)(const Shapes& shapes, ModelConfig& config);  ///< what shapes show; the rest stays open
};

/// Position embeddings [1 + side², width], which are resized for images of another size.
struct Positions {
  std::string tensor;                            ///< their name in the image tower
  int64_t (*pixels)(const ModelConfig& config);  ///< on a side, for each position
};

/// Of pixels in 0..1, per channel.
struct Normalization {
  std::array<double, 3> mean, std;
};

/// The Python library that has the same models, which `bench step` measures beside them.
struct Library {
  std::string module, layout;  ///< what to import; the layout of its weights, as parse_layout() reads it
};

struct Family {
  /// As users write it before a colon: "vit".
  std::string name;
  /// In the order in which users see them; image_size and channels are always there.
  std::vector<Size> sizes;
  /// Sets every size that is still open to its usual value. Throws for what has none, such as the heads of a
  /// width that is no multiple of 64.
  Required<void (*)(ModelConfig&)> set_defaults;
  /// The image tower of a config without open sizes; parameters are not initialised.
  Required<std::shared_ptr<Backbone> (*)(const ModelConfig&)> make_backbone;
  /// The text tower; null: there is none.
  Required<std::shared_ptr<ClipText> (*)(const ModelConfig&)> make_text;
  /// Nothing for models that keep names of their own.
  Required<std::optional<Recognition>> recognition;
  /// Nothing for models that have none, or cannot change them.
  Required<std::optional<Positions>> positions;
  /// How images are seen unless a checkpoint or the user says otherwise: their pixels, and which part of the
  /// resized image's shorter side is kept.
  Required<Normalization> normalization;
  Required<double> crop_pct;
  /// Whether training is faster with the channels of a pixel next to each other (NHWC).
  Required<bool> channels_last;
  /// Nothing where no library has them.
  Required<std::optional<Library>> library;
  /// What the FILE of "script:FILE" is, for a family whose models are files that say what they compute.
  /// Empty: its models are made from their sizes.
  Required<std::string> file;

  bool has_text() const { return *make_text != nullptr; }
  bool is_file() const { return !file->empty(); }
  /// What the image tower's names begin with in a checkpoint that may have both towers.
  std::string image_prefix() const { return has_text() ? "visual." : ""; }
};

/// All families, in the order in which users see them. Rows stay where they are.
const std::deque<Family>& families();
/// Throws for an unknown name, with the nearest.
const Family& find_family(const std::string& name);

/// Adds a row for the life of the program: parse_model(), checkpoints, training and `tpgm list` know it from
/// now on. Throws for a name that is taken, and for what is missing, with the family's name. Call it before
/// other threads use models.
const Family& add_family(Family family);

/// Calls visit(name, help, member of each config...) for each size that models of the family have.
template <typename Visit, typename... Configs>
void visit_sizes(const Family& family, Visit&& visit, Configs&... configs) {
  for (const Size& size : family.sizes) {
    std::visit([&](const auto member) { visit(size.name, size.help, (configs.*member)...); }, size.member);
  }
}

/// The sizes that shapes show, of tensors under our names: of CLIP's those of both towers, where both are
/// there.
ModelConfig sizes_of(const Family& family, const Shapes::Tensors& tensors);

}  // namespace tpgm

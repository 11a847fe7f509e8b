// The sizes of CLIP's text tower, which several families have, and the defaults that families share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tpgm/models/clip.h"
#include "tpgm/models/config.h"
#include "tpgm/models/families.h"
#include "tpgm/models/shapes.h"

namespace tpgm {

template <typename Value, typename Default>
void set_default(std::optional<Value>& value, Default usual) {
  if (!value) value = usual;
}

/// The weights and biases of two LayerNorms and four linear layers (Shapes::count()).
inline constexpr size_t kTensorsOfTransformerBlock = 12;

/// The conventional number of heads for a transformer of this width. Throws if there is no convention, and
/// asks for the size called `name`.
int64_t usual_heads(const char* name, int64_t width);

/// The size "activation": gelu or quick_gelu.
Size activation_size(const char* help);

/// Appends the sizes of the text tower to those of an image tower. `more` are sizes of the text tower that in
/// other families are sizes of both towers (the activation).
std::vector<Size> with_text_sizes(std::vector<Size> sizes, const std::vector<Size>& more = {});
void default_text_sizes(ModelConfig& config);
std::shared_ptr<ClipText> make_text_tower(const ModelConfig& config);
void read_text_sizes(const Shapes& shapes, ModelConfig& config);

}  // namespace tpgm

// The sizes of CLIP's text tower, which every family with one has, and the defaults that families share.
#pragma once

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

/// How many heads a transformer of this width has by convention. Throws if there is none, and says to give
/// the size called `name`.
int64_t usual_heads(const char* name, int64_t width);

/// "activation": gelu or quick_gelu.
Size activation_size(const char* help);

/// `sizes` of an image tower with the text tower's behind them; `more` are sizes of the text tower that the
/// image tower has not got.
std::vector<Size> with_text_sizes(std::vector<Size> sizes, const std::vector<Size>& more = {});
void default_text_sizes(ModelConfig& config);
std::shared_ptr<ClipText> make_text_tower(const ModelConfig& config);
void read_text_sizes(const Shapes& shapes, ModelConfig& config);

}  // namespace tpgm

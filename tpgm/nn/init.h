// How fresh transformers are drawn.
#pragma once

#include <vector>

#include "tpgm/nn/layers.h"

namespace tpgm {

void init_norm(LayerNormImpl& norm);

/// timm's rule (normal with deviation 0.02), or CLIP's, which narrows with width and depth. Biases are zero.
void init_blocks(std::vector<TransformerBlock>& blocks, int64_t width, bool clip);

}  // namespace tpgm

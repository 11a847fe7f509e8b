// Initializes the weights of transformers.
#pragma once

#include <vector>

#include "tpgm/nn/layers.h"

namespace tpgm {

/// Weight 1 and bias 0.
void init_norm(LayerNormImpl& norm);

/// Draws weights as timm does (normal with standard deviation 0.02) or, with `clip`, as CLIP does: with a
/// standard deviation that falls with width and depth. Biases are zero.
void init_blocks(std::vector<TransformerBlock>& blocks, int64_t width, bool clip);

}  // namespace tpgm

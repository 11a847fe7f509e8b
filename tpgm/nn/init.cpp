#include "tpgm/nn/init.h"

#include <ATen/ATen.h>

#include <cmath>

namespace tpgm {

void init_norm(LayerNormImpl& norm) {
  norm.weight.fill_(1);
  norm.bias.zero_();
}

void init_blocks(std::vector<TransformerBlock>& blocks, int64_t width, bool clip) {
  const at::NoGradGuard no_grad;
  const double narrow = 1 / std::sqrt(static_cast<double>(width));
  const double deep = narrow / std::sqrt(2.0 * static_cast<double>(blocks.size()));
  for (auto& block : blocks) {
    init_norm(*block->norm1);
    init_norm(*block->norm2);
    const auto draw = [&](Linear& layer, double clip_std) {
      layer->weight.normal_(0, clip ? clip_std : 0.02);
      layer->bias.zero_();
    };
    draw(block->attn->qkv, narrow);
    draw(block->attn->proj, deep);
    draw(block->fc1, narrow / std::sqrt(2.0));
    draw(block->fc2, deep);
  }
}

}  // namespace tpgm

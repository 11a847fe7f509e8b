// How far two checkpoints are apart: per tensor, per block, in one pass over both.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/checkpoints/chunks.h"
#include "tpgm/io/checkpoint.h"

namespace tpgm {

/// Of B's tensor from A's. Sums are taken in double, in an order that does not depend on the threads.
struct TensorDistance {
  std::string name;
  std::string block;  ///< see block_name()
  std::vector<int64_t> shape;
  int64_t numel = 0;
  double l2 = 0;        ///< ‖Δ‖₂
  double mars = 0;      ///< max over rows (of the first dimension) of Σ|Δ|; one row for rank ≤ 1
  double relative = 0;  ///< ‖Δ‖₂ / ‖A‖₂; 0 where nothing changed, ∞ where A is zero and B is not
  double cosine = 0;    ///< of the angle between A and B; NaN where one is zero
  bool buffer = false;     ///< BatchNorm's statistics, integers and bools: not in blocks and totals
  bool unchanged = false;  ///< equal bit for bit (equal values, where the types differ)
};

/// Parameters alone: a running variance or a number of batches would drown them.
struct BlockDistance {
  std::string name;
  int64_t tensors = 0, numel = 0;
  double l2 = 0;        ///< of all tensors of the block as one vector
  double mean_l2 = 0;   ///< mean over its tensors: the paper's per-layer figure
  double mars = 0;      ///< the largest
  double relative = 0;  ///< as one vector
};

struct ReshapedTensor {
  std::string name;
  std::vector<int64_t> a, b;
};

struct Comparison {
  std::vector<TensorDistance> tensors;  ///< common to both, in A's order
  std::vector<BlockDistance> blocks;    ///< by depth: stem, numbered blocks by number, the rest
  std::vector<std::string> only_a, only_b;
  std::vector<ReshapedTensor> reshaped;
  BlockDistance all;  ///< everything as one block
};

/// Names are aligned first (align_names). `only` and `exclude` are globs; empty keeps everything.
Comparison compare_checkpoints(Checkpoint a, Checkpoint b, const std::vector<std::string>& only = {},
                               const std::vector<std::string>& exclude = {}, const Progress& progress = {});

}  // namespace tpgm

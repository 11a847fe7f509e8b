// Distances between two checkpoints, per tensor and per block, in one pass over both.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/checkpoints/chunks.h"
#include "tpgm/io/checkpoint.h"

namespace tpgm {

/// The distance of a tensor in B from the same tensor in A. Sums are in double, in an order that does not
/// depend on the number of threads.
struct TensorDistance {
  std::string name;
  std::string block;  ///< see block_name()
  std::vector<int64_t> shape;
  int64_t numel = 0;
  double l2 = 0;           ///< ‖Δ‖₂
  double mars = 0;         ///< max over rows (of the first dimension) of Σ|Δ|; one row for rank ≤ 1
  double relative = 0;     ///< ‖Δ‖₂ / ‖A‖₂; 0 if nothing changed, ∞ if A is zero and B is not
  double cosine = 0;       ///< cosine similarity of A and B; NaN if one is zero
  bool buffer = false;     ///< BatchNorm's statistics, integers and bools: not part of blocks and totals
  bool unchanged = false;  ///< bit by bit equal (equal values, if the types differ)
};

/// The distance of a block. Only parameters count: running statistics and counters would dominate the sums.
struct BlockDistance {
  std::string name;
  int64_t tensors = 0, numel = 0;
  double l2 = 0;        ///< ‖Δ‖₂ of all tensors of the block as one vector
  double mean_l2 = 0;   ///< mean of ‖Δ‖₂ over its tensors, as in the paper's figure of layers
  double mars = 0;      ///< the largest of its tensors
  double relative = 0;  ///< of the block as one vector
};

struct ReshapedTensor {
  std::string name;
  std::vector<int64_t> a, b;
};

struct Comparison {
  std::vector<TensorDistance> tensors;  ///< common to both, in A's order
  std::vector<BlockDistance> blocks;    ///< by depth: the stem, numbered blocks, the rest
  std::vector<std::string> only_a, only_b;
  std::vector<ReshapedTensor> reshaped;
  BlockDistance all;  ///< everything as one block
};

/// Compares B with A after align_names(). `only` and `exclude` are globs; an empty list keeps everything.
Comparison compare_checkpoints(Checkpoint a, Checkpoint b, const std::vector<std::string>& only = {},
                               const std::vector<std::string>& exclude = {}, const Progress& progress = {});

}  // namespace tpgm

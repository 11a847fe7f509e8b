// Distances between two checkpoints.
#include "tpgm/checkpoints/compare.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/checkpoints/arithmetic.h"
#include "tpgm/core/dtype.h"
#include "tpgm/kernels/projection.h"

namespace tpgm {
namespace {

constexpr int64_t kChunkElements = 1 << 18;

// Whole rows of a tensor, or a part of one.
struct Rows {
  size_t tensor;
  int64_t begin, count;  // elements
  int64_t cols;          // elements of a row, or of this part of one
  bool part;             // continues the row of the previous chunk
};

struct Sums {
  kernels::PairSums pair;
  double largest_row = 0;  // Σ|Δ|
  bool equal = true;       // bit for bit
};

std::vector<Rows> rows_of(const std::vector<TensorDistance>& tensors) {
  std::vector<Rows> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& shape = tensors[i].shape;
    const int64_t numel = tensors[i].numel;
    if (numel == 0) continue;
    const int64_t cols = shape.size() < 2 ? numel : numel / shape[0];
    if (cols <= kChunkElements) {
      const int64_t step = kChunkElements / cols * cols;
      for (int64_t begin = 0; begin < numel; begin += step) {
        chunks.push_back({i, begin, std::min(step, numel - begin), cols, false});
      }
      continue;
    }
    for (int64_t begin = 0; begin < numel;) {
      const int64_t in_row = begin % cols;
      const int64_t count = std::min(kChunkElements, cols - in_row);
      chunks.push_back({i, begin, count, count, in_row > 0});
      begin += count;
    }
  }
  return chunks;
}

void add(kernels::PairSums& into, const kernels::PairSums& sums) {
  into.difference_squared += sums.difference_squared;
  into.difference_absolute += sums.difference_absolute;
  into.weights_squared += sums.weights_squared;
  into.anchor_squared += sums.anchor_squared;
  into.product += sums.product;
}

Sums measure(const at::Tensor& from, const at::Tensor& to, const Rows& rows) {
  Sums sums;
  sums.equal = from.scalar_type() == to.scalar_type() &&
               std::memcmp(from.const_data_ptr(), to.const_data_ptr(), from.nbytes()) == 0;
  const auto type = working_type(from.scalar_type(), to.scalar_type());
  const bool complex = from.is_complex() || to.is_complex();
  const at::Tensor a = working_vector(from, type, complex), b = working_vector(to, type, complex);
  const int64_t cols = rows.cols * (a.numel() / rows.count);  // complex numbers are pairs
  const auto element = static_cast<int64_t>(a.element_size());
  for (int64_t begin = 0; begin < a.numel(); begin += cols) {
    const auto row = kernels::pair_sums(static_cast<const char*>(b.const_data_ptr()) + begin * element,
                                        static_cast<const char*>(a.const_data_ptr()) + begin * element,
                                        dtype_of(a.scalar_type()), cols);
    add(sums.pair, row);
    if (complex) continue;
    // Not std::max alone, which would hide a NaN.
    sums.largest_row = std::isnan(row.difference_absolute)
                           ? row.difference_absolute
                           : std::max(sums.largest_row, row.difference_absolute);
  }
  if (complex) {  // |Δ| is not the sum of the magnitudes of both parts
    sums.largest_row = (to.to(at::kComplexDouble) - from.to(at::kComplexDouble))
                           .abs()
                           .view({-1, rows.cols})
                           .sum(1)
                           .max()
                           .item<double>();
  }
  return sums;
}

double relative_to(double distance, double norm) {
  return distance == 0 ? 0 : norm == 0 ? std::numeric_limits<double>::infinity() : distance / norm;
}

bool is_buffer(const std::string& name, at::ScalarType dtype) {
  return at::isIntegralType(dtype, /*includeBool=*/true) || name.ends_with("running_mean") ||
         name.ends_with("running_var");
}

// The place of a block in a network according to its name: the stem, the numbered blocks, the rest.
constexpr int kNumbered = 1;
int depth_of(const std::string& block) {
  const size_t dot = block.rfind('.');
  const std::string last = block.substr(dot == std::string::npos ? 0 : dot + 1);
  if (!last.empty() && std::isdigit(static_cast<unsigned char>(last.back())) != 0 &&
      (last.find_first_not_of("0123456789") == std::string::npos || last.find('_') != std::string::npos)) {
    return kNumbered;
  }
  for (const char* word : {"stem", "embed", "token", "ln_pre", "pre_layrnorm", "conv1", "bn1", "conv_proj"}) {
    if (block.find(word) != std::string::npos) return 0;
  }
  return 2;
}

struct BlockSums {
  BlockDistance block;
  double difference_squared = 0, norm_squared = 0, l2_sum = 0;

  void add(const TensorDistance& tensor, const kernels::PairSums& sums) {
    ++block.tensors;
    block.numel += tensor.numel;
    // Skipped, because an unchanged mask of −∞ would make the distance of the block NaN.
    if (tensor.unchanged && !std::isfinite(sums.difference_squared + sums.anchor_squared)) return;
    block.mars = std::isnan(tensor.mars) ? tensor.mars : std::max(block.mars, tensor.mars);
    difference_squared += sums.difference_squared;
    norm_squared += sums.anchor_squared;
    l2_sum += tensor.l2;
  }
  BlockDistance finish() {
    block.l2 = std::sqrt(difference_squared);
    block.mean_l2 = block.tensors == 0 ? 0 : l2_sum / static_cast<double>(block.tensors);
    block.relative = relative_to(block.l2, std::sqrt(norm_squared));
    return block;
  }
};

}  // namespace

Comparison compare_checkpoints(Checkpoint a, Checkpoint b, const std::vector<std::string>& only,
                               const std::vector<std::string>& exclude, const Progress& progress) try {
  align_names(a, b);
  std::vector<std::string> names = a.names();
  for (const auto& name : b.names()) {
    if (!a.contains(name)) names.push_back(name);
  }
  check_globs("`only`", only, names);
  check_globs("`exclude`", exclude, names);

  Comparison result;
  for (const auto& name : names) {
    if ((!only.empty() && !matches_any(only, name)) || matches_any(exclude, name)) continue;
    if (!b.contains(name)) {
      result.only_a.push_back(name);
    } else if (!a.contains(name)) {
      result.only_b.push_back(name);
    } else if (a.entry(name).shape != b.entry(name).shape) {
      result.reshaped.push_back({name, a.entry(name).shape, b.entry(name).shape});
    } else {
      TensorDistance tensor;
      tensor.name = name;
      tensor.block = block_name(name);
      if (tensor.block.empty()) tensor.block = name;
      tensor.shape = a.entry(name).shape;
      tensor.numel = a.entry(name).numel();
      tensor.buffer = is_buffer(name, a.entry(name).dtype);
      result.tensors.push_back(std::move(tensor));
    }
  }

  const auto chunks = rows_of(result.tensors);
  std::vector<Sums> partial(chunks.size());
  for_each_chunk(chunks.size(), [&](size_t i) {
    const auto& [tensor, begin, count, cols, part] = chunks[i];
    const std::string& name = result.tensors[tensor].name;
    const at::Tensor from = a.slice(name, begin, count), to = b.slice(name, begin, count);
    partial[i] = measure(from, to, chunks[i]);
    if (progress) progress(from.nbytes() + to.nbytes());
  });

  std::vector<Sums> sums(result.tensors.size());
  double row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sums& total = sums[chunks[i].tensor];
    add(total.pair, partial[i].pair);
    total.equal = total.equal && partial[i].equal;
    row = chunks[i].part ? row + partial[i].largest_row : partial[i].largest_row;
    total.largest_row = std::isnan(row) ? row : std::max(total.largest_row, row);
  }

  std::map<std::string, BlockSums> blocks;
  std::vector<std::string> order;
  BlockSums all;
  for (size_t i = 0; i < sums.size(); ++i) {
    TensorDistance& tensor = result.tensors[i];
    const auto& pair = sums[i].pair;
    const bool same_type = a.entry(tensor.name).dtype == b.entry(tensor.name).dtype;
    tensor.l2 = std::sqrt(pair.difference_squared);
    tensor.mars = sums[i].largest_row;
    tensor.relative = relative_to(tensor.l2, std::sqrt(pair.anchor_squared));
    tensor.cosine = pair.product / std::sqrt(pair.anchor_squared) / std::sqrt(pair.weights_squared);
    tensor.unchanged = same_type ? sums[i].equal : tensor.l2 == 0;
    if (tensor.unchanged) tensor.l2 = tensor.mars = tensor.relative = 0;  // NaN counts as equal to NaN
    if (tensor.buffer) continue;
    const auto [found, fresh] = blocks.try_emplace(tensor.block);
    if (fresh) order.push_back(tensor.block);
    found->second.add(tensor, pair);
    all.add(tensor, pair);
  }
  std::stable_sort(order.begin(), order.end(), [](const std::string& x, const std::string& y) {
    const int depth_x = depth_of(x), depth_y = depth_of(y);
    return depth_x != depth_y ? depth_x < depth_y : depth_x == kNumbered && natural_less(x, y);
  });
  for (const auto& name : order) {
    result.blocks.push_back(blocks[name].finish());
    result.blocks.back().name = name;
  }
  result.all = all.finish();
  return result;
} catch (...) {
  rethrow_from("compare_checkpoints");
}

}  // namespace tpgm

// Cuts tensors into pieces, from their shapes alone.
#include <algorithm>

#include "tpgm/kernels/projection.h"

namespace tpgm::kernels {
namespace {

// 32 KiB of float32: enough for a GPU block to hide its latency, small enough for the last wave to be full.
constexpr int64_t kPieceSize = 8192;

// The number of rows of `cols` elements in a piece. A GPU block distributes short rows among its eight warps,
// so their number is a multiple of eight; a long row takes the whole block.
int64_t rows_per_piece(int64_t cols) {
  constexpr int64_t kWarps = 8;
  constexpr int64_t kShortRow = 2048;
  return cols > kShortRow ? 1
                          : std::max<int64_t>(1, kPieceSize / std::max<int64_t>(1, cols) / kWarps) * kWarps;
}

}  // namespace

Plan make_plan(const std::vector<Layout>& layouts) {
  Plan plan;
  for (const auto& layout : layouts) {
    const auto tensor = static_cast<int32_t>(plan.tensors.size());
    const auto first_piece = static_cast<int32_t>(plan.pieces.size());
    const auto per_row = std::max<int64_t>(1, (layout.cols + kPieceSize - 1) / kPieceSize);
    const auto rows_at_once = rows_per_piece(layout.cols);
    for (int64_t row = 0; row < layout.rows; row += rows_at_once) {
      const auto rows = std::min(rows_at_once, layout.rows - row);
      const auto end = (row + rows) * layout.cols;
      auto begin = row * layout.cols;
      do {
        const auto size = per_row > 1 ? std::min(kPieceSize, end - begin) : end - begin;
        plan.pieces.push_back({row, begin, static_cast<int32_t>(rows), static_cast<int32_t>(size), tensor});
        begin += size;
      } while (begin < end);
    }
    plan.tensors.push_back({layout, plan.rows, first_piece,
                            static_cast<int32_t>(plan.pieces.size()) - first_piece,
                            static_cast<int32_t>(per_row)});
    plan.rows += layout.rows;
  }
  return plan;
}

}  // namespace tpgm::kernels

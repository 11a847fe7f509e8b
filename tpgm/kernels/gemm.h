// Matrix products in bf16 on CUDA by cuBLASLt, each shape with its first choice or with the algorithm that
// was the fastest when the shape was first seen: the first takes up to a fifth longer. Raw pointers in, no
// torch. The twin on the CPU is ATen's product.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpgm::kernels {

/// out [rows, cols] ← a · b, bf16 with sums in fp32. Matrices lie row by row, and `stride` is the distance
/// from one row to the next; a transposed operand is stored as its transpose. Pointers and rows are aligned
/// to 16 bytes.
struct Product {
  struct Operand {
    const void* data = nullptr;
    int64_t stride = 0;
    bool transposed = false;
  };
  int64_t rows = 0, cols = 0, inner = 0;
  Operand a, b;
  const void* bias = nullptr;  // not null: [cols], added to every row
  bool add = false;            // the product is added to what `out` holds
  void* out = nullptr;
  int64_t stride = 0;  // of out
};

/// Device memory that a product may use besides.
inline constexpr size_t kGemmWorkspace = size_t{32} << 20;

/// How its algorithm is chosen: cuBLASLt's first, which is always the same one, or by timing.
enum class Choice : uint8_t { kFirst, kFastest };

/// Whether the fastest is known for products of this shape on the current device.
bool is_timed(const Product& product);

/// Times the algorithms that cuBLASLt proposes, with their options, and waits for the device. It records CUDA
/// graphs on a stream of its own meanwhile, and nobody may synchronize the whole device. `out` is scratch
/// then, as large as the product's.
void time_algorithms(const Product& product, void* workspace, void* stream);

/// One launch, two where an algorithm splits the inner dimension. kFastest is kFirst where nothing was timed.
void multiply(const Product& product, Choice choice, void* workspace, void* stream);

}  // namespace tpgm::kernels

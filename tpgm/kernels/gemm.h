// GEMMs in bf16 on CUDA by cuBLASLt. Each shape runs with cuBLASLt's first choice, or with
// the algorithm that was the fastest when the shape was first timed: the first choice takes up to a fifth
// longer. Raw pointers in, no torch. The CPU twin is ATen's matmul.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpgm::kernels {

/// out [rows, cols] ← a · b, in bf16 with sums in fp32. Matrices are row-major, and `stride` is the distance
/// from one row to the next, in elements; a transposed operand is stored as its transpose. Pointers and rows
/// are aligned to 16 bytes.
struct Gemm {
  struct Operand {
    const void* data = nullptr;
    int64_t stride = 0;
    bool transposed = false;
  };
  int64_t rows = 0, cols = 0, inner = 0;
  Operand a, b;
  const void* bias = nullptr;  // not null: [cols], added to every row
  bool add = false;            // a · b is added to what `out` holds
  void* out = nullptr;
  int64_t stride = 0;  // of out
};

/// Bytes of device memory at `workspace`.
inline constexpr size_t kGemmWorkspace = size_t{32} << 20;

/// The algorithm: cuBLASLt's first choice, which never changes, or the fastest that was timed.
enum class Choice : uint8_t { kFirst, kFastest };

/// Whether the algorithms for GEMMs of this shape were timed on the current device.
bool is_timed(const Gemm& gemm);

/// Times the algorithms that cuBLASLt proposes, with their options, and waits for the device. It captures
/// CUDA graphs on a stream of its own, so no other thread may synchronize the whole device meanwhile. `out`
/// is overwritten: give it scratch memory of the size of the result.
void time_algorithms(const Gemm& gemm, void* workspace, void* stream);

/// Runs the GEMM: one launch, or two where an algorithm splits the inner dimension. Where nothing was timed,
/// kFastest is kFirst.
void multiply(const Gemm& gemm, Choice choice, void* workspace, void* stream);

}  // namespace tpgm::kernels

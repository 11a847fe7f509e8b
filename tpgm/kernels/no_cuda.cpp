// Stands in for the CUDA sources in a build without CUDA.
#include <stdexcept>

#include "tpgm/kernels/batch_norm.h"
#include "tpgm/kernels/fold_norm.h"
#include "tpgm/kernels/gemm.h"
#include "tpgm/kernels/projection.h"
#include "tpgm/kernels/radii.h"
#include "tpgm/kernels/residual.h"

namespace tpgm::kernels {
namespace {

[[noreturn]] void refuse() {
  throw std::runtime_error(
      "tpgm was built without CUDA; build it against a LibTorch with CUDA (CMAKE_PREFIX_PATH) and nvcc on "
      "the PATH");
}

}  // namespace

const FoldNormBackend& fold_norm_cuda() { refuse(); }
const Backend& cuda() { refuse(); }
const BatchNormBackend& batch_norm_cuda() { refuse(); }
const RadiiBackend& radii_cuda() { refuse(); }
const ResidualBackend& residual_cuda() { refuse(); }
bool is_timed(const Gemm&) { refuse(); }
void time_algorithms(const Gemm&, void*, void*) { refuse(); }
void multiply(const Gemm&, Choice, void*, void*) { refuse(); }
bool tuned_for(int) { return false; }

}  // namespace tpgm::kernels

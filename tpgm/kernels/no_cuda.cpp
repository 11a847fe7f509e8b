// Stands in for cuda.cu in a build without CUDA.
#include <stdexcept>

#include "tpgm/kernels/kernels.h"

namespace tpgm::kernels {

const Backend& cuda() {
  throw std::runtime_error(
      "tpgm was built without CUDA; build it against a LibTorch with CUDA (CMAKE_PREFIX_PATH) and nvcc on "
      "the PATH");
}

}  // namespace tpgm::kernels

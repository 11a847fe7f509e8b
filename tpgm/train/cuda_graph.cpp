#include "tpgm/train/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace tpgm {

struct CudaGraph::Impl {
  at::cuda::CUDAGraph graph;
};

CudaGraph::CudaGraph() : impl_(std::make_unique<Impl>()) {}
CudaGraph::~CudaGraph() = default;

void CudaGraph::capture(const std::function<void()>& work) {
  c10::cuda::device_synchronize();
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    // Other threads, the loader's among them, may use the device meanwhile.
    impl_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        impl_->graph.capture_end();
      } catch (...) {  // the first error says more
      }
      throw;
    }
    impl_->graph.capture_end();
  }
  c10::cuda::device_synchronize();
}

void CudaGraph::replay() { impl_->graph.replay(); }

}  // namespace tpgm

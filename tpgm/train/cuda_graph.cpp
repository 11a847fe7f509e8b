#include "tpgm/train/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>

namespace tpgm {

namespace {

// One for all graphs of a device: cuBLAS keeps a workspace for every stream that it meets.
c10::cuda::CUDAStream capture_stream() {
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  static std::mutex guard;
  const std::lock_guard lock(guard);
  const auto device = c10::cuda::current_device();
  auto place = streams.find(device);
  if (place == streams.end()) place = streams.emplace(device, c10::cuda::getStreamFromPool()).first;
  return place->second;
}

}  // namespace

class GraphMemory {
 public:
  at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
};

struct CudaGraph::Impl {
  std::shared_ptr<GraphMemory> memory;
  at::cuda::CUDAGraph graph;
};

CudaGraph::CudaGraph() : impl_(std::make_unique<Impl>()) {}
CudaGraph::~CudaGraph() = default;

std::shared_ptr<GraphMemory> CudaGraph::memory() { return std::make_shared<GraphMemory>(); }

void CudaGraph::capture(const std::shared_ptr<GraphMemory>& memory, const std::function<void()>& work) {
  impl_->memory = memory;
  c10::cuda::device_synchronize();
  // What the work used so far is free now; the graph would take as much again from elsewhere.
  c10::cuda::CUDACachingAllocator::emptyCache();
  {
    const c10::cuda::CUDAStreamGuard guard(capture_stream());
    // Other threads, the loader's among them, may use the device meanwhile.
    impl_->graph.capture_begin(memory->pool, cudaStreamCaptureModeThreadLocal);
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

// Work on a CUDA device, recorded once and replayed with one launch.
#pragma once

#include <functional>
#include <memory>

namespace tpgm {

/// A build without CUDA throws in the constructor (no_cuda_graph.cpp).
class CudaGraph {
 public:
  CudaGraph();
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Calls `work` once, which does nothing yet: its kernels are recorded, and the memory they use is kept for
  /// them as long as the graph lives. `work` must have run before, so that libraries are warm, and may not
  /// wait for the device. Waits for the device.
  void capture(const std::function<void()>& work);
  /// Does all of it on the current stream.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm

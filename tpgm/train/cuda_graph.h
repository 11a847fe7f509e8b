// Work on a CUDA device, captured once and replayed with one launch.
#pragma once

#include <functional>
#include <memory>

namespace tpgm {

/// What graphs work in. Those that share it must not run at once, and what one leaves there the next may
/// overwrite, but for tensors that are still held.
class GraphMemory;

/// A build without CUDA throws in the constructor (no_cuda_graph.cpp).
class CudaGraph {
 public:
  CudaGraph();
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Memory for several graphs.
  static std::shared_ptr<GraphMemory> memory();

  /// Calls `work` once, which does nothing yet: its kernels are captured, and the memory they use is kept for
  /// them as long as the graph lives. `work` must have run before, so that libraries are warm, and may not
  /// wait for the device. Waits for the device.
  void capture(const std::shared_ptr<GraphMemory>& memory, const std::function<void()>& work);
  /// Does all of it on the current stream.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm

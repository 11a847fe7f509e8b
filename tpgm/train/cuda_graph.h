// CUDA graphs: kernels that are captured once and replayed with one launch.
#pragma once

#include <functional>
#include <memory>

namespace tpgm {

/// A memory pool of graphs. Graphs that share one must not run at the same time. A graph may overwrite what
/// another one left in the pool, except tensors that are still referenced.
class GraphMemory;

/// In a build without CUDA the constructor throws (no_cuda_graph.cpp).
class CudaGraph {
 public:
  CudaGraph();
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// A new memory pool.
  static std::shared_ptr<GraphMemory> memory();

  /// Calls `work` once to capture its kernels, without running them. The graph keeps the memory that they
  /// use. `work` must have run before, so that libraries are initialized, and must not synchronize. capture()
  /// itself does.
  void capture(const std::shared_ptr<GraphMemory>& memory, const std::function<void()>& work);
  /// Runs the captured kernels on the current stream.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm

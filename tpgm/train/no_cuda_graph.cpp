#include <c10/util/Exception.h>

#include "tpgm/train/cuda_graph.h"

namespace tpgm {

class GraphMemory {};
struct CudaGraph::Impl {};

CudaGraph::CudaGraph() { TORCH_CHECK(false, "[CudaGraph] this build has no CUDA"); }
CudaGraph::~CudaGraph() = default;
std::shared_ptr<GraphMemory> CudaGraph::memory() { return nullptr; }
void CudaGraph::capture(const std::shared_ptr<GraphMemory>&, const std::function<void()>&) {}
void CudaGraph::replay() {}

}  // namespace tpgm

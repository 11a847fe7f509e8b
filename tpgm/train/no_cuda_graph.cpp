#include <c10/util/Exception.h>

#include "tpgm/train/cuda_graph.h"

namespace tpgm {

struct CudaGraph::Impl {};

CudaGraph::CudaGraph() { TORCH_CHECK(false, "[CudaGraph] this build has no CUDA"); }
CudaGraph::~CudaGraph() = default;
void CudaGraph::capture(const std::function<void()>&) {}
void CudaGraph::replay() {}

}  // namespace tpgm

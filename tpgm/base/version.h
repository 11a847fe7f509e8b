// What was built.
#pragma once

namespace tpgm {

/// "0.1.0".
const char* version();
/// True if the CUDA kernels were built in.
bool built_with_cuda();

}  // namespace tpgm

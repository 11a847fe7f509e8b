// The version and features of this build.
#pragma once

namespace tpgm {

/// "0.1.0".
const char* version();
/// True if the build includes the CUDA kernels.
bool built_with_cuda();

}  // namespace tpgm

#include "tpgm/base/version.h"

namespace tpgm {

const char* version() { return TPGM_VERSION; }

bool built_with_cuda() { return TPGM_WITH_CUDA; }

}  // namespace tpgm

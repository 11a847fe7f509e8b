#include "tpgm/train/optimizers/algorithm.h"

#include <c10/util/Exception.h>

namespace tpgm {

const OptimizerAlgorithm& algorithm_of(Opt opt) {
  switch (opt) {
    case Opt::kSgd:
      return kSgdAlgorithm;
    case Opt::kAdam:
      return kAdamAlgorithm;
    case Opt::kAdamW:
      return kAdamWAlgorithm;
  }
  TORCH_CHECK(false, "[Optimizer] ", static_cast<int64_t>(opt), " is not an optimizer");
}

}  // namespace tpgm

// The numbers from which a run resumes, as they are in the metadata of its state.
#include <nlohmann/json.hpp>

#include "tests/fuzz/support.h"
#include "tpgm/train/run_state.h"

using namespace tpgm;

FUZZ(bytes) {
  constexpr int64_t kEpochs = 10, kSteps = 100;
  const auto numbers = RunLog::Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const auto state = parse_run_state(numbers, kEpochs, kSteps);
    fuzz::demand(state.step >= 0 && state.step <= (kEpochs + 1) * kSteps, "a step is one of the run");
    fuzz::demand(state.best_epoch >= 0 && state.radius_batches >= 0 && state.skipped >= 0,
                 "counts are counts");
    const auto again = parse_run_state(to_json(state), kEpochs, kSteps);
    fuzz::demand(again.step == state.step && again.data == state.data, "a state that is written is the same");
  });
}

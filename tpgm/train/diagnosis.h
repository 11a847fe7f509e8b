// Tells a run whose method holds it at the pre-trained weights, or changes nothing.
#pragma once

#include <cstdint>
#include <string>

#include "tpgm/methods/method.h"
#include "tpgm/train/run_state.h"

namespace tpgm {

/// After an epoch with this mean training loss: what HasDiagnosis::diagnosis() finds, as a sentence with what
/// to try; empty if there is nothing to say. A method that holds the weights at the anchor is named from a third
/// of the `steps` of the run on, and only if the training loss is still near state.first_loss: held-out data may
/// well ask for small radii where training succeeds nevertheless. A method without effect is named after the
/// last epoch.
std::string diagnosis_text(Method& method, const RunState& state, double loss, int64_t steps,
                           bool last_epoch);

}  // namespace tpgm

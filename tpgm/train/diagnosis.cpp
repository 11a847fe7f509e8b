#include "tpgm/train/diagnosis.h"

#include <fmt/format.h>

namespace tpgm {

std::string diagnosis_text(Method& method, const RunState& state, double loss, int64_t steps,
                           bool last_epoch) {
  constexpr double kNear = 0.9;  // of the first loss
  using Finding = HasDiagnosis::Finding;
  const bool still_high = state.first_loss > 0 && loss > kNear * state.first_loss;
  if (!last_epoch && (3 * state.step < steps || !still_high)) return "";
  const auto found = diagnosis_of(method);
  if (!found) return "";
  if (found->finding == Finding::kHeld && still_high)
    return fmt::format(
        "the radii hold the model at the pre-trained weights: {}, and the training loss is still {:.3g}, "
        "after "
        "{:.3g} in the first steps. Where fine-tuning does better, {}",
        found->numbers, loss, state.first_loss, found->remedy);
  if (found->finding == Finding::kNoEffect && last_epoch)
    return fmt::format("the method has next to no effect, this is close to plain fine-tuning: {}. Try {}",
                       found->numbers, found->remedy);
  return "";
}

}  // namespace tpgm

#include "tpgm/train/progress.h"

#include <fmt/format.h>

namespace tpgm {

std::string to_text(const TrainProgress& progress) {
  std::string numbers;
  if (progress.numbers)
    numbers = fmt::format(", {:.0f} images/s, loss {:.4f}, accuracy {:.2f} %", progress.numbers->images_s,
                          progress.numbers->loss, progress.numbers->accuracy);
  return fmt::format("{} epoch {}/{}, step {}/{}{}", progress.phase, progress.epoch, progress.epochs,
                     progress.step, progress.steps, numbers);
}

std::string to_text(const RadiusProgress& progress) {
  return fmt::format("learning radii: step {} of {}, loss {:.4f}", progress.step, progress.steps,
                     progress.loss.item<double>());
}

double RunClock::seconds_left(int64_t steps, int64_t evaluations) const {
  const double step = (since(begin_) - evaluation_) / static_cast<double>(std::max<int64_t>(1, steps_));
  const double each = evaluations_ > 0 ? evaluation_ / static_cast<double>(evaluations_) : 0;
  return static_cast<double>(steps) * step + each * static_cast<double>(evaluations);
}

}  // namespace tpgm

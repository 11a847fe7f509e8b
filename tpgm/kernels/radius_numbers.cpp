#include "tpgm/kernels/radius_numbers.h"

#include <map>
#include <utility>

namespace tpgm::kernels {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kAdamEps = 1e-8;

}  // namespace

RadiusNumbers::RadiusNumbers(const RadiiBackend& backend, const RadiusRule& rule,
                             const std::vector<std::string>& groups, double* numbers, const int32_t* report,
                             const Memory& memory)
    : backend_(backend),
      rule_(rule),
      count_(static_cast<int64_t>(groups.size())),
      numbers_(numbers),
      saved_(static_cast<double*>(memory(static_cast<size_t>(size(groups)) * sizeof(double), nullptr))),
      report_(report) {
  std::vector<int64_t> before(groups.size(), -1), behind(groups.size(), -1);
  std::map<std::string, int64_t> last_of;
  for (int64_t k = 0; k < count_; ++k) {
    const auto [place, is_new] = last_of.try_emplace(groups[k], k);
    if (!is_new) {
      before[k] = std::exchange(place->second, k);
      behind[before[k]] = k;
    }
  }
  const size_t bytes = groups.size() * sizeof(int64_t);
  before_ = static_cast<const int64_t*>(memory(bytes, before.data()));
  behind_ = static_cast<const int64_t*>(memory(bytes, behind.data()));
}

RadiiCall RadiusNumbers::call(void* stream) const {
  return {count_, numbers_, saved_, learned_, rule_.relative, learned_ ? nullptr : report_, false, stream};
}

// The first call after remember() saves.
RadiiCall RadiusNumbers::saving_call(void* stream) {
  auto result = call(stream);
  result.save = std::exchange(saves_, false);
  return result;
}

void RadiusNumbers::start(const double* smallest, const double* largest, void* stream) {
  backend_.start(call(stream), {smallest, largest, rule_.start_at_half, rule_.eps});
}

void RadiusNumbers::clamp(const double* largest, void* stream) {
  backend_.clamp(saving_call(stream), largest);
}

RadiiStep RadiusNumbers::step_along(const double* radius_gradients, const double* largest) const {
  return {radius_gradients, largest, rule_.mu, rule_.tv, before_, behind_,
          rule_.lr,         kBeta1,  kBeta2,   kAdamEps, nullptr};
}

void RadiusNumbers::step(const double* radius_gradients, const double* largest, void* stream) {
  backend_.step(saving_call(stream), step_along(radius_gradients, largest));
}

void RadiusNumbers::gradient(const double* radius_gradients, const double* largest, double* result,
                             void* stream) {
  auto step = step_along(radius_gradients, largest);
  step.gradient = result;
  backend_.step(saving_call(stream), step);
}

void RadiusNumbers::restore(void* stream) {
  if (!std::exchange(saves_, false)) backend_.restore(call(stream));  // else no call has changed them yet
}

}  // namespace tpgm::kernels

#include "tpgm/train/loss_queue.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "tpgm/base/untrusted.h"

namespace tpgm {

double LossSums::mean_loss() const {
  return images > 0 ? loss / images : std::numeric_limits<double>::quiet_NaN();
}

double LossSums::accuracy() const {
  return images > 0 ? 100 * correct / images : std::numeric_limits<double>::quiet_NaN();
}

void StepLoss::add(const TrainingStep::Result& result, const std::vector<int64_t>& indices) {
  const auto images = static_cast<double>(indices.size());
  const auto numbers = at::stack({result.loss.to(at::kDouble) * images, result.correct.to(at::kDouble)});
  numbers_ = numbers_.defined() ? numbers_ + numbers : numbers;
  indices_.insert(indices_.end(), indices.begin(), indices.end());
}

void StepLoss::send() {
  const at::Device device = numbers_.device();
  if (!device.is_cuda()) return;
  numbers_ = at::empty({2}, at::TensorOptions(at::kDouble).pinned_memory(true)).copy_(numbers_, true);
  sent_ = std::make_unique<c10::Event>(device.type());
  sent_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

LossSums StepLoss::sums() const {
  if (sent_) sent_->synchronize();
  const auto* numbers = numbers_.const_data_ptr<double>();
  return {numbers[0], numbers[1], static_cast<double>(indices_.size())};
}

void LossQueue::read(size_t leave, const std::function<void(const StepLoss&, const LossSums&)>& take) {
  while (losses_.size() > leave) {
    const StepLoss loss = std::move(losses_.front());
    losses_.pop_front();
    take(loss, loss.sums());
  }
}

std::string first_places(const std::vector<std::string>& places) {
  constexpr size_t kFew = 3;
  std::vector<std::string> few;
  for (size_t i = 0; i < std::min(kFew, places.size()); ++i)
    few.push_back(fmt::format("'{}'", printable(places[i], kMaxPath)));
  return fmt::format("{}{}", fmt::join(few, ", "),
                     places.size() > kFew ? fmt::format(" and {} more", places.size() - kFew) : "");
}

}  // namespace tpgm

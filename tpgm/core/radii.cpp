#include "tpgm/core/radii.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <cmath>
#include <sstream>
#include <utility>

#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/device_memory.h"

namespace tpgm {
namespace {

RadiiOptions checked(RadiiOptions options) {
  TORCH_CHECK(options.lr() > 0 && std::isfinite(options.lr()), "[Radii] radius_lr must be positive, not ",
              options.lr());
  TORCH_CHECK(options.eps() > 0 && std::isfinite(options.eps()), "[Radii] eps must be positive, not ",
              options.eps());
  TORCH_CHECK(options.mu() >= 0 && std::isfinite(options.mu()), "[Radii] mu must be at least 0, not ",
              options.mu());
  TORCH_CHECK(options.tv() >= 0 && std::isfinite(options.tv()), "[Radii] tv must be at least 0, not ",
              options.tv());
  return options;
}

kernels::RadiusRule rule_of(const RadiiOptions& options) {
  return {.start_at_half = options.init() == RadiusInit::kHalf,
          .eps = options.eps(),
          .relative = options.scale() == RadiusScale::kRelative,
          .lr = options.lr(),
          .mu = options.mu(),
          .tv = options.tv()};
}

}  // namespace

Radii::Radii(RadiiOptions options, const std::vector<std::string>& groups, at::TensorOptions scalar_options,
             at::Tensor report)
    : options_(checked(std::move(options))),
      report_(std::move(report)),
      numbers_(at::zeros({kernels::kRadiiRows, static_cast<int64_t>(groups.size())}, scalar_options)),
      radius_numbers_(scalar_options.device().is_cuda() ? kernels::radii_cuda() : kernels::radii_cpu(),
                      rule_of(options_), groups, numbers_.mutable_data_ptr<double>(),
                      report_.defined() ? report_.const_data_ptr<int32_t>() : nullptr,
                      memory_on(scalar_options.device(), memory_)) {
  forget();
}

// Back to the state after construction.
void Radii::forget() {
  numbers_.zero_();
  learned_ = numbers_[kernels::kLearned];
  radii_ = numbers_[kernels::kRadius];
  moments_ = numbers_.slice(0, kernels::kFirstMoment, kernels::kSteps + 1);
  distances_ = numbers_[kernels::kLargest];
  optimizer_ = nullptr;
  initialised_ = false;
}

// Tells the kernels where the learned parameter is, and returns the stream to launch on.
void* Radii::on_stream() {
  radius_numbers_.learn_elsewhere(optimizer_ ? learned_.mutable_data_ptr<double>() : nullptr);
  return current_stream(numbers_.device());
}

const at::Tensor& Radii::prepare(const at::Tensor& smallest, const at::Tensor& largest) {
  const at::NoGradGuard no_grad;
  const at::OptionalDeviceGuard guard(numbers_.device());
  if (!initialised_) {
    radius_numbers_.start(smallest.const_data_ptr<double>(), largest.const_data_ptr<double>(), on_stream());
    if (options_.optimizer()) make_optimizer(numbers_[kernels::kLearned], {});
    initialised_ = true;
  }
  radius_numbers_.clamp(largest.const_data_ptr<double>(), on_stream());
  return radii_;
}

const at::Tensor& Radii::prepare_before_measuring() {
  TORCH_INTERNAL_ASSERT(known_before_measuring());
  const at::OptionalDeviceGuard guard(numbers_.device());
  radius_numbers_.clamp(/*largest=*/nullptr, on_stream());
  return radii_;
}

at::Tensor Radii::ratios() const {
  return at::where(distances_ > 0, at::clamp(radii_ / distances_, 0, 1), at::ones_like(distances_));
}

at::Tensor Radii::mean_gradients() const {
  return options_.optimizer() ? at::Tensor() : numbers_[kernels::kFirstMoment];
}

// Creates the user's optimizer on a copy of `learned`, and loads `state` into it if it is not empty. Changes
// nothing if the factory or the state is bad.
void Radii::make_optimizer(const at::Tensor& learned, const std::string& state) {
  auto moved = learned.detach().clone().requires_grad_(true);
  auto optimizer = options_.optimizer()({moved});
  TORCH_CHECK(optimizer, "[Radii] the radius optimizer's factory returned nothing");
  if (!state.empty()) {
    std::istringstream stream(state);
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    optimizer->load(archive);
  }
  learned_ = std::move(moved);
  optimizer_ = std::move(optimizer);
}

void Radii::update(const at::Tensor& radius_gradients, const at::Tensor& largest) {
  TORCH_INTERNAL_ASSERT(initialised_, "update() before prepare()");
  const at::NoGradGuard no_grad;
  const at::OptionalDeviceGuard guard(numbers_.device());
  const auto* along = radius_gradients.const_data_ptr<double>();
  const auto* taken_at = largest.const_data_ptr<double>();
  if (!optimizer_) return radius_numbers_.step(along, taken_at, on_stream());
  const auto gradient = at::empty_like(radii_);
  radius_numbers_.gradient(along, taken_at, gradient.mutable_data_ptr<double>(), on_stream());
  learned_.mutable_grad() = gradient;
  optimizer_->step();
  TORCH_CHECK(at::isfinite(learned_).all().item<bool>(),
              "[Radii] the radius optimizer has made a radius NaN or Inf; lower its learning rate");
}

std::string Radii::save_optimizer() const {
  if (!optimizer_) return {};
  torch::serialize::OutputArchive archive;
  optimizer_->save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void Radii::remember() {
  remembered_.initialised = initialised_;
  if (!initialised_) return;
  radius_numbers_.remember();
  if (!optimizer_) return;
  remembered_.learned = learned_.detach().clone();
  remembered_.optimizer = save_optimizer();
}

void Radii::go_back() {
  if (!remembered_.initialised) return forget();
  const at::OptionalDeviceGuard guard(numbers_.device());
  radius_numbers_.restore(on_stream());
  if (optimizer_) make_optimizer(remembered_.learned, remembered_.optimizer);
}

NamedTensors Radii::state_dict() const {
  NamedTensors state;
  if (!initialised_) return state;
  state.insert("learned", learned_.detach().cpu().clone());
  state.insert("radii", radii_.cpu().clone());
  state.insert("distances", distances_.cpu().clone());
  if (optimizer_) {
    auto bytes = save_optimizer();
    state.insert("optimizer",
                 at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte).clone());
  } else {
    state.insert("moments", moments_.cpu().clone());
  }
  return state;
}

void Radii::load_state_dict(const NamedTensors& state) {
  const auto device = moments_.device();
  const auto count = moments_.size(1);
  const auto* learned = state.find("learned");
  if (!learned) {
    forget();
    return;
  }
  const auto* moments = state.find("moments");
  const auto* optimizer = state.find("optimizer");
  TORCH_CHECK(learned->numel() == count, "the state has ", learned->numel(), " radii, the model ", count,
              " constrained tensors; load it into a method built with the same model and options");
  TORCH_CHECK((options_.optimizer() ? optimizer : moments) != nullptr && state.contains("radii"),
              "the state was saved with ", moments ? "the built-in" : "another",
              " radius optimizer; build the method with the same radius_optimizer");
  TORCH_CHECK(state.contains("distances"),
              "the state has no distances: an earlier version of tpgm saved it. Start the run again");
  TORCH_CHECK(learned->dim() == 1 && state["radii"].sizes() == learned->sizes() &&
                  state["distances"].sizes() == learned->sizes() &&
                  (!moments || moments->sizes() == moments_.sizes()),
              "the state is damaged: its radii, distances and moments differ in number");
  if (options_.optimizer()) {
    const auto* bytes = static_cast<const char*>(optimizer->const_data_ptr());
    try {
      make_optimizer(learned->to(device), std::string(bytes, optimizer->nbytes()));
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "the radius optimizer cannot read its state: ", error.what());
    }
  } else {
    learned_.copy_(*learned);
  }
  initialised_ = true;
  radii_.copy_(state["radii"]);
  distances_.copy_(state["distances"]);
  if (moments)
    moments_.copy_(*moments);
  else
    moments_.zero_();
}

}  // namespace tpgm

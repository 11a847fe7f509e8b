#include "tpgm/core/radii.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "tpgm/core/stream.h"

namespace tpgm {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kAdamEps = 1e-8;

}  // namespace

Radii::Radii(RadiiOptions options, const std::vector<std::string>& groups, at::TensorOptions scalar_options,
             at::Tensor report)
    : options_(std::move(options)) {
  TORCH_CHECK(options_.lr() > 0 && std::isfinite(options_.lr()), "[Radii] radius_lr must be positive, not ",
              options_.lr());
  TORCH_CHECK(options_.eps() > 0 && std::isfinite(options_.eps()), "[Radii] eps must be positive, not ",
              options_.eps());
  TORCH_CHECK(options_.mu() >= 0 && std::isfinite(options_.mu()), "[Radii] mu must not be negative, and is ",
              options_.mu());
  TORCH_CHECK(options_.tv() >= 0 && std::isfinite(options_.tv()), "[Radii] tv must not be negative, and is ",
              options_.tv());
  const auto count = static_cast<int64_t>(groups.size());
  std::vector<int64_t> before(groups.size(), -1), behind(groups.size(), -1);
  std::map<std::string, int64_t> last_of;
  for (int64_t k = 0; k < count; ++k) {
    const auto [place, is_new] = last_of.try_emplace(groups[k], k);
    if (!is_new) {
      before[k] = std::exchange(place->second, k);
      behind[before[k]] = k;
    }
  }
  const auto device = scalar_options.device();
  backend_ = device.is_cuda() ? &kernels::radii_cuda() : &kernels::radii_cpu();
  before_ = at::tensor(before, at::kLong).to(device);
  behind_ = at::tensor(behind, at::kLong).to(device);
  report_ = std::move(report);
  numbers_ = at::zeros({kernels::kRadiiRows, count}, scalar_options);
  saved_ = at::zeros_like(numbers_);
  unlimited_ = at::full({count}, std::numeric_limits<double>::infinity(), scalar_options);
  forget();
}

// As new.
void Radii::forget() {
  numbers_.zero_();
  learned_ = numbers_[kernels::kLearned];
  radii_ = numbers_[kernels::kRadius];
  moments_ = numbers_.slice(0, kernels::kFirstMoment, kernels::kSteps + 1);
  distances_ = numbers_[kernels::kLargest];
  optimizer_ = nullptr;
  initialised_ = false;
}

const at::Tensor& Radii::prepare(const at::Tensor& smallest, const at::Tensor& largest) {
  const at::NoGradGuard no_grad;
  const at::OptionalDeviceGuard guard(numbers_.device());
  if (!initialised_) {
    auto first =
        options_.init() == RadiusInit::kHalf ? smallest / 2 : at::full_like(smallest, options_.eps());
    if (options_.scale() == RadiusScale::kRelative) {
      // A tensor that has not moved yet starts where it would if all its rows were equally far.
      const double unmoved = options_.init() == RadiusInit::kHalf ? 0.5 : options_.eps();
      first = at::where(largest > 0, first / largest, at::full_like(first, unmoved));
    }
    start(first, {});
  }
  backend_->clamp(call(), largest.const_data_ptr<double>());
  return radii_;
}

const at::Tensor& Radii::prepare_before_measuring() {
  TORCH_INTERNAL_ASSERT(known_before_measuring());
  return prepare({}, unlimited_);
}

at::Tensor Radii::ratios() const {
  return at::where(distances_ > 0, at::clamp(radii_ / distances_, 0, 1), at::ones_like(distances_));
}

// What both kernels get. The first after save() saves.
kernels::RadiiCall Radii::call() {
  kernels::RadiiCall call;
  call.count = numbers_.size(1);
  call.numbers = numbers_.mutable_data_ptr<double>();
  call.saved = saved_.mutable_data_ptr<double>();
  call.learned = optimizer_ ? learned_.mutable_data_ptr<double>() : nullptr;
  call.relative = options_.scale() == RadiusScale::kRelative;
  // Who has an optimizer of his own waits, and looks at the report himself.
  call.report = optimizer_ || !report_.defined() ? nullptr : report_.const_data_ptr<int32_t>();
  call.save = std::exchange(saves_, false);
  call.stream = current_stream(numbers_.device());
  return call;
}

// Gives the optimizer the numbers to move (one of the user's a tensor of its own), and the state it was
// saved with, if any. Changes nothing if the factory or the state is bad.
void Radii::start(const at::Tensor& learned, const std::string& optimizer_state) {
  if (!options_.optimizer()) {
    learned_.copy_(learned);
  } else {
    auto moved = learned.detach().clone().requires_grad_(true);
    auto optimizer = options_.optimizer()({moved});
    TORCH_CHECK(optimizer, "[Radii] the radius optimizer's factory returned nothing");
    if (!optimizer_state.empty()) {
      std::istringstream stream(optimizer_state);
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      optimizer->load(archive);
    }
    learned_ = std::move(moved);
    optimizer_ = std::move(optimizer);
  }
  initialised_ = true;
}

void Radii::update(const at::Tensor& slopes, const at::Tensor& largest) {
  TORCH_INTERNAL_ASSERT(initialised_, "update() before prepare()");
  const at::NoGradGuard no_grad;
  const at::OptionalDeviceGuard guard(numbers_.device());
  kernels::RadiiStep step;
  step.radius_gradients = slopes.const_data_ptr<double>();
  step.largest = largest.const_data_ptr<double>();
  step.mu = options_.mu();
  step.tv = options_.tv();
  step.before = before_.const_data_ptr<int64_t>();
  step.behind = behind_.const_data_ptr<int64_t>();
  step.lr = options_.lr();
  step.beta1 = kBeta1;
  step.beta2 = kBeta2;
  step.eps = kAdamEps;
  if (!optimizer_) {
    backend_->step(call(), step);
    return;
  }
  const auto gradient = at::empty_like(radii_);
  step.gradient = gradient.mutable_data_ptr<double>();
  backend_->step(call(), step);
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

Radii::Snapshot Radii::snapshot() const {
  return {initialised_, numbers_.clone(), optimizer_ ? learned_.detach().clone() : at::Tensor(),
          save_optimizer()};
}

void Radii::roll_back(const Snapshot& snapshot) {
  forget();
  numbers_.copy_(snapshot.numbers);
  if (snapshot.initialised) {
    start(snapshot.learned.defined() ? snapshot.learned : snapshot.numbers[kernels::kLearned],
          snapshot.optimizer);
  }
}

void Radii::go_back() {
  if (!std::exchange(saves_, false))  // else nobody has moved them yet
    numbers_.copy_(saved_);
}

NamedTensors Radii::state_dict() const {
  NamedTensors state;
  if (initialised_) {
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
  }
  return state;
}

void Radii::load_state_dict(const std::string& owner, const NamedTensors& state) {
  const auto device = moments_.device();
  const auto count = moments_.size(1);
  const auto* learned = state.find("learned");
  if (!learned) {
    forget();
    return;
  }
  const auto* moments = state.find("moments");
  const auto* optimizer = state.find("optimizer");
  TORCH_CHECK(learned->numel() == count, "[", owner, "] the state has ", learned->numel(),
              " radii, the model ", count,
              " constrained tensors; load it into a method built with the same model and options");
  TORCH_CHECK((options_.optimizer() ? optimizer : moments) != nullptr && state.contains("radii"), "[", owner,
              "] the state was saved with ", moments ? "the built-in" : "another",
              " radius optimizer; build the method with the same radius_optimizer");
  TORCH_CHECK(state.contains("distances"), "[", owner,
              "] the state has no distances: an earlier version of tpgm saved it. Start the run again");
  TORCH_CHECK(learned->dim() == 1 && state["radii"].sizes() == learned->sizes() &&
                  state["distances"].sizes() == learned->sizes() &&
                  (!moments || moments->sizes() == moments_.sizes()),
              "[", owner, "] the state is damaged: its radii, distances and moments differ in number");
  try {
    start(learned->to(device),
          optimizer ? std::string(static_cast<const char*>(optimizer->const_data_ptr()), optimizer->nbytes())
                    : std::string());
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "[", owner, "] the radius optimizer cannot read its state: ", error.what());
  }
  radii_.copy_(state["radii"]);
  distances_.copy_(state["distances"]);
  if (moments)
    moments_.copy_(*moments);
  else
    moments_.zero_();
}

}  // namespace tpgm

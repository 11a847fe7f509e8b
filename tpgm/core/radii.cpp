#include "tpgm/core/radii.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <cmath>
#include <map>
#include <sstream>

namespace tpgm {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kAdamEps = 1e-8;

}  // namespace

Radii::Radii(RadiiOptions options, const std::vector<std::string>& groups, at::TensorOptions scalar_options)
    : options_(std::move(options)) {
  TORCH_CHECK(options_.lr() > 0 && std::isfinite(options_.lr()), "[Radii] radius_lr must be positive, not ",
              options_.lr());
  TORCH_CHECK(options_.eps() > 0 && std::isfinite(options_.eps()), "[Radii] eps must be positive, not ",
              options_.eps());
  TORCH_CHECK(options_.mu() >= 0 && std::isfinite(options_.mu()), "[Radii] mu must not be negative, and is ",
              options_.mu());
  TORCH_CHECK(options_.tv() >= 0 && std::isfinite(options_.tv()), "[Radii] tv must not be negative, and is ",
              options_.tv());
  std::vector<std::int64_t> first, second;
  std::map<std::string, std::int64_t> last_of;
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const auto index = static_cast<std::int64_t>(k);
    const auto [place, is_new] = last_of.try_emplace(groups[k], index);
    if (!is_new) {
      first.push_back(std::exchange(place->second, index));
      second.push_back(index);
    }
  }
  pair_first_ = at::tensor(first, at::kLong).to(scalar_options.device());
  pair_second_ = at::tensor(second, at::kLong).to(scalar_options.device());
  numbers_ = at::zeros({5, static_cast<std::int64_t>(groups.size())}, scalar_options);
  forget();
}

/// As new.
void Radii::forget() {
  numbers_.zero_();
  learned_ = numbers_[0];
  radii_ = numbers_[1];
  moments_ = numbers_.slice(0, 2);
  optimizer_ = nullptr;
  initialised_ = false;
}

const at::Tensor& Radii::prepare(const at::Tensor& smallest, const at::Tensor& largest) {
  const at::NoGradGuard no_grad;
  const bool relative = options_.scale() == RadiusScale::kRelative;
  const auto moved = largest > 0;
  if (!initialised_) {
    auto first =
        options_.init() == RadiusInit::kHalf ? smallest / 2 : at::full_like(smallest, options_.eps());
    if (relative) {
      // A tensor that has not moved yet starts where it would if all its rows were equally far.
      const double unmoved = options_.init() == RadiusInit::kHalf ? 0.5 : options_.eps();
      first = at::where(moved, first / largest, at::full_like(first, unmoved));
    }
    start(first, {});
  }
  // Where the two limits cross (a tensor nearer than 1e-8 to its anchor) the lower one holds.
  const auto clamped = [](const at::Tensor& value, const at::Tensor& low, const at::Tensor& high) {
    return at::maximum(at::minimum(value, high), low);
  };
  const auto lowest = at::full_like(largest, kLowest);
  if (relative) {
    const auto one = at::ones_like(largest);
    learned_.copy_(at::where(moved, clamped(learned_, at::minimum(lowest / largest, one), one),
                             at::clamp(learned_, 0, 1)));
    radii_.copy_(at::maximum(learned_ * largest, lowest));
  } else {
    learned_.copy_(clamped(learned_, lowest, largest));
    radii_.copy_(learned_);
  }
  return radii_;
}

/// Gives the optimizer the numbers to move (one of the user's a tensor of its own), and the state it was
/// saved with, if any. Changes nothing if the factory or the state is bad.
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
  const auto moved = largest > 0;
  auto gradient = slopes;
  if (options_.mu() > 0) {
    gradient = gradient + 2 * options_.mu() * radii_;
  }
  if (options_.tv() > 0 && pair_first_.numel() > 0) {
    const auto ratio = radii_ / largest;
    const auto has_ratio = largest >= kLowest;  // nearer than that the radius is a constant
    const auto both = has_ratio.index({pair_first_}).logical_and(has_ratio.index({pair_second_}));
    const auto step = ratio.index({pair_second_}) - ratio.index({pair_first_});
    const auto sign = at::where(both, step.sign(), at::zeros_like(step));
    auto by_ratio = at::zeros_like(ratio);
    by_ratio.index_add_(0, pair_second_, sign);
    by_ratio.index_add_(0, pair_first_, -sign);
    gradient = gradient + options_.tv() * by_ratio / largest;
  }
  if (options_.scale() == RadiusScale::kRelative) {
    gradient = gradient * largest;
  }
  gradient = at::where(moved, gradient, at::zeros_like(gradient));
  if (optimizer_) {
    learned_.mutable_grad() = gradient;
    optimizer_->step();
    TORCH_CHECK(at::isfinite(learned_).all().item<bool>(),
                "[Radii] the radius optimizer has made a radius NaN or Inf; lower its learning rate");
  } else {
    adam_step(gradient);
  }
}

void Radii::adam_step(const at::Tensor& gradient) {
  const auto m = kBeta1 * moments_[0] + (1 - kBeta1) * gradient;
  const auto v = kBeta2 * moments_[1] + (1 - kBeta2) * gradient * gradient;
  const auto step = moments_[2] + 1;
  const auto m_hat = m / (1 - at::pow(kBeta1, step));
  const auto v_hat = v / (1 - at::pow(kBeta2, step));
  learned_.copy_(learned_ - options_.lr() * m_hat / (v_hat.sqrt() + kAdamEps));
  moments_.copy_(at::stack({m, v, step}));
}

std::string Radii::save_optimizer() const {
  if (!optimizer_) {
    return {};
  }
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
    start(snapshot.learned.defined() ? snapshot.learned : snapshot.numbers[0], snapshot.optimizer);
  }
}

void Radii::roll_back_unless(const at::Tensor& finite, const Snapshot& snapshot) {
  TORCH_INTERNAL_ASSERT(!optimizer_ && snapshot.initialised);
  numbers_.copy_(at::where(finite, numbers_, snapshot.numbers));
}

NamedTensors Radii::state_dict() const {
  NamedTensors state;
  if (initialised_) {
    state.insert("learned", learned_.detach().cpu().clone());
    state.insert("radii", radii_.cpu().clone());
    if (optimizer_) {
      auto bytes = save_optimizer();
      state.insert("optimizer",
                   at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte).clone());
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
  TORCH_CHECK(learned->dim() == 1 && state["radii"].sizes() == learned->sizes() &&
                  (!moments || moments->sizes() == moments_.sizes()),
              "[", owner, "] the state is damaged: its radii and moments differ in number");
  try {
    start(learned->to(device),
          optimizer ? std::string(static_cast<const char*>(optimizer->const_data_ptr()), optimizer->nbytes())
                    : std::string());
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "[", owner, "] the radius optimizer cannot read its state: ", error.what());
  }
  radii_.copy_(state["radii"]);
  if (moments) {
    moments_.copy_(*moments);
  } else {
    moments_.zero_();
  }
}

}  // namespace tpgm

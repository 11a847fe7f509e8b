#include "tpgm/methods/tpgm.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "tpgm/base/call.h"
#include "tpgm/io/state_dict.h"

namespace tpgm {
namespace {

Norm norm_of(const TpgmOptions& options) {
  return options.norm().value_or(options.every_or_default().at_end() ? Norm::kL2 : Norm::kMars);
}

RadiiOptions radii_options(const TpgmOptions& options) {
  return RadiiOptions()
      .init(options.init())
      .eps(options.eps())
      .scale(options.scale())
      .lr(options.radius_lr())
      .mu(options.mu())
      .tv(options.tv())
      .optimizer(options.radius_optimizer());
}

// The group of each tensor: the first glob that matches it, or a group of its own. Without globs, its block.
std::vector<std::string> groups_of(const std::vector<std::string>& names,
                                   const std::vector<std::string>& globs) try {
  check_globs("groups", globs, names);
  std::vector<std::string> groups;
  for (const auto& name : names) {
    auto group = globs.empty() ? block_name(name) : name;
    for (const auto& glob : globs) {
      if (matches(glob, name)) {
        group = glob;
        break;
      }
    }
    groups.push_back(group);
  }
  return groups;
} catch (...) {
  rethrow_from("Tpgm");
}

}  // namespace

Tpgm::Tpgm(const ModuleView& model, TpgmOptions options)
    : Tpgm(model, model.named_parameters(), std::move(options)) {}

Tpgm::Tpgm(const ModuleView& model, const NamedTensors& anchor, TpgmOptions options)
    : AnchoredMethod("Tpgm", model, anchor, options, norm_of(options)),
      options_(std::move(options)),
      radius_steps_(options_.radius_steps_or_default()),
      radii_(radii_options(options_), groups_of(displacements_.names(), options_.groups()),
             displacements_.scalar_options(), displacements_.flag().report()),
      held_out_loss_(name_, model, displacements_.device()) {
  TORCH_CHECK(options_.every_or_default().steps >= 1 || options_.every_or_default().at_end(),
              "[Tpgm] every must be at least 1, or kEnd, not ", options_.every_or_default().steps);
  TORCH_CHECK(radius_steps_ >= 0, "[Tpgm] radius_steps must be at least 0, not ", radius_steps_);
}

// Learns radii for the present weights, which it does not change. If it throws, the radii are as before.
at::Tensor Tpgm::learn(const Closure& radius_loss) {
  poll();
  const bool wait = waits();  // the same throughout, although prepare() initializes the radii
  const auto check_if_waiting = [&] {
    if (wait) check();
  };
  auto projected =
      radius_steps_ > 0 ? displacements_.room_for_copies(in_bfloat16_) : std::vector<at::Tensor>();
  const bool at_once = radius_steps_ > 0 && radii_.known_before_measuring();
  if (at_once)
    displacements_.measure_and_project_into(projected, radii_.values());
  else
    displacements_.measure();
  at::Tensor loss;
  radii_.remember();
  try {
    check_if_waiting();
    radii_.prepare(displacements_.smallest(), displacements_.largest());
    for (int64_t i = 0; i < radius_steps_; ++i) {
      if (i > 0 || !at_once) displacements_.project_into(projected, radii_.values());
      auto result = held_out_loss_.evaluate(radius_loss, displacements_.tensors(), projected);
      loss = std::move(result.loss);
      displacements_.flag().expect_finite(loss);
      const auto gradients =
          displacements_.radius_gradients(result.gradients, radii_.values(), Rows::kAtOrBeyond);
      check_if_waiting();
      radii_.update(gradients, displacements_.largest());
      radii_.prepare(displacements_.smallest(), displacements_.largest());
    }
  } catch (...) {
    radii_.go_back();
    throw;
  }
  return loss;
}

void Tpgm::learn_and_project(const Closure& radius_loss) {
  learn(radius_loss);
  displacements_.project(radii_.values());
  post();
}

at::Tensor Tpgm::update_radii(const Closure& radius_loss) {
  auto loss = learn(radius_loss);
  post();
  return loss;
}

void Tpgm::project() {
  poll();
  displacements_.measure();
  waits() ? check() : radii_.remember();
  displacements_.project(radii_.prepare(displacements_.smallest(), displacements_.largest()));
  post();
}

Tpgm::Kind Tpgm::kind() const {
  if (options_.every_or_default().at_end()) return kNothing;
  if (step_ % options_.every_or_default().steps == 0) return kLearn;
  return options_.project() == ProjectWhen::kAlways ? kProject : kNothing;
}

void Tpgm::after_step(const Closure& radius_loss) {
  switch (kind()) {
    case kLearn:
      learn_and_project(radius_loss);
      break;
    case kProject:
      project();
      break;
    case kNothing:
      break;
  }
  ++step_;
}

std::optional<StepPlan> Tpgm::next_step() const {
  const auto next = kind();
  if (next != kNothing && radii_.must_wait()) return std::nullopt;  // for the device
  return StepPlan{next, next == kLearn ? radius_steps_ : 0};
}

void Tpgm::replayed() {
  ++step_;
  AnchoredMethod::replayed();
}

void Tpgm::finish(const Closure& radius_loss) {
  if (options_.every_or_default().at_end()) learn_and_project(radius_loss);
  displacements_.flag().check();
}

NamedNumbers Tpgm::radii() const {
  return radii_.initialised() ? displacements_.by_name(radii_.values()) : NamedNumbers();
}

NamedNumbers Tpgm::ratios() const {
  return radii_.initialised() ? displacements_.by_name(radii_.ratios()) : NamedNumbers();
}

std::optional<HasDiagnosis::Diagnosis> Tpgm::diagnosis() {
  constexpr double kAtAnchor = 0.01;  // a ratio
  const auto gradients = radii_.mean_gradients();
  if (options_.every_or_default().at_end() || !radii_.initialised() || !gradients.defined())
    return std::nullopt;
  const auto share = [](const at::Tensor& which) { return which.to(at::kDouble).mean().item<double>(); };
  const double held = share(radii_.ratios() < kAtAnchor), shrinking = share(gradients > 0);
  if (held < 0.5 || shrinking < 0.5) return std::nullopt;
  return Diagnosis{
      Finding::kHeld,
      fmt::format("{:.0f} % of the ratios are below {} and {:.0f} % of the radius gradients shrink "
                  "their radius",
                  100 * held, kAtAnchor, 100 * shrinking),
      "learn the radii once, after training (`every` end), and see that the radius loss rewards what "
      "the training loss rewards"};
}

NamedTensors Tpgm::state_dict() const {
  auto state = AnchoredMethod::state_dict();
  put(state, "step", step_);
  put(state, "scale", static_cast<int64_t>(options_.scale()));
  state.update(with_prefix(radii_.state_dict(), "radii."));
  state.update(with_prefix(held_out_loss_.state_dict(), "probe."));  // the name that saved states have
  return state;
}

void Tpgm::load_state_dict(const NamedTensors& state) try {
  AnchoredMethod::load_state_dict(state);
  const auto step = get_int(state, "step");
  TORCH_CHECK(get_int(state, "scale") == static_cast<int64_t>(options_.scale()),
              "the state was saved with another scale; build the method with the same options");
  radii_.load_state_dict(below(state, "radii."));
  held_out_loss_.load_state_dict(below(state, "probe."));
  step_ = step;
} catch (...) {
  rethrow_from(name_);
}

}  // namespace tpgm

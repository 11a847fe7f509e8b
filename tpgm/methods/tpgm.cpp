#include "tpgm/methods/tpgm.h"

namespace tpgm {
namespace {

Norm norm_of(const TpgmOptions& options) {
  return options.norm().value_or(options.every().at_end() ? Norm::kL2 : Norm::kMars);
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

// The group of each tensor: the first glob that matches it, else one of its own; blocks where there are no
// globs.
std::vector<std::string> groups_of(const std::vector<std::string>& names,
                                   const std::vector<std::string>& globs) {
  check_globs("Tpgm", "groups", globs, names);
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
}

}  // namespace

Tpgm::Tpgm(torch::nn::Module& module, TpgmOptions options)
    : Tpgm(module, module.named_parameters(), std::move(options)) {}

Tpgm::Tpgm(torch::nn::Module& module, const NamedTensors& anchor, TpgmOptions options)
    : AnchoredMethod("Tpgm", module, anchor, options.exclude(), norm_of(options), options.anchor_storage()),
      options_(std::move(options)),
      radius_steps_(options_.radius_steps().value_or(options_.every().at_end() ? 200 : 1)),
      radii_(radii_options(options_), groups_of(constraints_.names(), options_.groups()),
             constraints_.scalar_options(), constraints_.report()),
      probe_(name_, module, constraints_.device()) {
  TORCH_CHECK(options_.every().steps >= 1 || options_.every().at_end(),
              "[Tpgm] every must be at least 1, or kEnd, not ", options_.every().steps);
  TORCH_CHECK(radius_steps_ >= 0, "[Tpgm] radius_steps must not be negative, and is ", radius_steps_);
}

// Learns radii for the weights as they are, and leaves those alone. If it throws, the radii are as before.
at::Tensor Tpgm::learn(const Closure& radius_loss) {
  constraints_.poll();
  // On the device's own time nothing waits, and a flag holds back what is not finite. The first call, and
  // every call with an optimizer that knows no flag, waits instead.
  const bool wait = constraints_.device().is_cpu() || !radii_.initialised() || !radii_.updates_on_device();
  const auto before = wait ? radii_.snapshot() : Radii::Snapshot();
  const auto check_if_waiting = [&] {
    if (wait) constraints_.check();
  };
  auto projected = radius_steps_ > 0 ? constraints_.room_for_copies(in_bfloat16_) : std::vector<at::Tensor>();
  const bool at_once = radius_steps_ > 0 && radii_.known_before_measuring();
  if (at_once)
    constraints_.measure_and_project_into(projected, radii_.values());
  else
    constraints_.measure();
  at::Tensor loss;
  try {
    check_if_waiting();
    if (!wait) radii_.save_at_next_call();
    radii_.prepare(constraints_.smallest(), constraints_.largest());
    for (int64_t i = 0; i < radius_steps_; ++i) {
      if (i > 0 || !at_once) constraints_.project_into(projected, radii_.values());
      auto result = probe_.evaluate(radius_loss, constraints_.tensors(), projected);
      loss = std::move(result.loss);
      constraints_.expect_finite_loss(loss);
      const auto slopes = constraints_.slopes(result.gradients, radii_.values(), kernels::Rows::kAtOrBeyond);
      check_if_waiting();
      radii_.update(slopes, constraints_.largest());
      radii_.prepare(constraints_.smallest(), constraints_.largest());
    }
  } catch (...) {
    wait ? radii_.roll_back(before) : radii_.go_back();
    throw;
  }
  return loss;
}

void Tpgm::learn_and_project(const Closure& radius_loss) {
  learn(radius_loss);
  constraints_.project(radii_.values());
  constraints_.post();
}

at::Tensor Tpgm::update_radii(const Closure& radius_loss) {
  auto loss = learn(radius_loss);
  constraints_.post();
  return loss;
}

void Tpgm::project() {
  constraints_.poll();
  const bool wait = !radii_.initialised() || !radii_.updates_on_device();
  constraints_.measure();
  if (wait)
    constraints_.check();
  else
    radii_.save_at_next_call();
  constraints_.project(radii_.prepare(constraints_.smallest(), constraints_.largest()));
  constraints_.post();
}

Tpgm::Kind Tpgm::kind() const {
  if (options_.every().at_end()) return kNothing;
  if (step_ % options_.every().steps == 0) return kLearn;
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
  if (next != kNothing && !(radii_.initialised() && radii_.updates_on_device()))
    return std::nullopt;  // it waits for the device
  return StepPlan{next, next == kLearn ? radius_steps_ : 0};
}

void Tpgm::replayed() {
  ++step_;
  AnchoredMethod::replayed();
}

void Tpgm::finish(const Closure& radius_loss) {
  if (options_.every().at_end()) learn_and_project(radius_loss);
  constraints_.check();
}

torch::OrderedDict<std::string, double> Tpgm::radii() const {
  return radii_.initialised() ? constraints_.by_name(radii_.values())
                              : torch::OrderedDict<std::string, double>();
}

torch::OrderedDict<std::string, double> Tpgm::ratios() const {
  return radii_.initialised() ? constraints_.by_name(radii_.ratios())
                              : torch::OrderedDict<std::string, double>();
}

NamedTensors Tpgm::state_dict() const {
  auto state = AnchoredMethod::state_dict();
  put(state, "step", step_);
  put(state, "scale", static_cast<int64_t>(options_.scale()));
  put(state, "radii.", radii_.state_dict());
  put(state, "probe.", probe_.state_dict());
  return state;
}

void Tpgm::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  const auto step = get_int(state, "step");
  TORCH_CHECK(get_int(state, "scale") == static_cast<int64_t>(options_.scale()),
              "[Tpgm] the state was saved with another scale; build the method with the same options");
  radii_.load_state_dict(name_, get_part(state, "radii."));
  probe_.load_state_dict(get_part(state, "probe."));
  step_ = step;
}

}  // namespace tpgm

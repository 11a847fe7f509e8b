#include "tpgm/methods/ftp.h"

#include <ATen/ops/where.h>

namespace tpgm {
Ftp::Ftp(torch::nn::Module& module, FtpOptions options)
    : Ftp(module, module.named_parameters(), std::move(options)) {}

Ftp::Ftp(torch::nn::Module& module, const NamedTensors& anchor, FtpOptions options)
    : AnchoredMethod("Ftp", module, anchor, options.exclude(), options.norm(), options.anchor_storage()),
      options_(std::move(options)),
      radii_(RadiiOptions().init(RadiusInit::kEps).lr(options_.radius_lr()), constraints_.names(),
             constraints_.scalar_options(), constraints_.report()) {
  TORCH_CHECK(options_.k() >= 0 && options_.k() <= 1, "[Ftp] k must be in [0, 1], and is ", options_.k());
  holds_ = !constraints_.keep_directions();
  constraints_.keep_held_memory();
}

// look() for errors. On CUDA the step that went wrong has been taken before anybody knew; after an error the
// radii go on without that step.
template <class Look>
void Ftp::or_forget(Look&& look) {
  try {
    look();
  } catch (...) {
    constraints_.release();
    stepped_ = false;
    slopes_.reset();
    throw;
  }
}

void Ftp::check() {
  or_forget([this] { constraints_.check(); });
}

void Ftp::finish(const Closure&) { check(); }

std::optional<StepPlan> Ftp::next_step() const {
  return radii_.initialised() && stepped_ ? std::optional(StepPlan()) : std::nullopt;
}

void Ftp::replayed() {
  or_forget([this] { constraints_.poll(); });
  constraints_.post();
}

void Ftp::before_step() {
  or_forget([this] { constraints_.poll(); });
  if (stepped_) {
    const auto slopes = constraints_
                            .measure_slopes(constraints_.gradients(), radii_.values(),
                                            options_.mask() ? kernels::Rows::kBeyond : kernels::Rows::kAll)
                            .slopes;
    slopes_ = at::where(slopes > 0, slopes * options_.k(), slopes);
  }
}

void Ftp::after_step(const Closure&) {
  TORCH_CHECK(!stepped_ || slopes_, "[Ftp] after_step() without before_step(); call it after backward()");
  const auto learn = [this] {
    if (slopes_) radii_.update(*slopes_, radii_.distances());  // those of the step before
  };
  if (radii_.initialised() && !holds_ && constraints_.device().is_cuda()) {
    radii_.save_at_next_call();
    learn();
    const auto& radii = radii_.prepare_before_measuring();
    try {
      constraints_.measure_and_project(radii);
    } catch (...) {
      radii_.go_back();
      throw;
    }
    radii_.prepare(constraints_.smallest(), constraints_.largest());
  } else {
    constraints_.measure(holds_);  // on the CPU this throws, and nothing has changed
    if (!radii_.initialised())
      check();
    else
      radii_.save_at_next_call();
    learn();
    constraints_.project(radii_.prepare(constraints_.smallest(), constraints_.largest()));
  }
  slopes_.reset();
  stepped_ = true;
  constraints_.post();
}

torch::OrderedDict<std::string, double> Ftp::radii() const {
  return radii_.initialised() ? constraints_.by_name(radii_.values())
                              : torch::OrderedDict<std::string, double>();
}

torch::OrderedDict<std::string, double> Ftp::ratios() const {
  return radii_.initialised() ? constraints_.by_name(radii_.ratios()) : NamedNumbers();
}

NamedTensors Ftp::state_dict() const {
  auto state = AnchoredMethod::state_dict();
  put(state, "stepped", static_cast<int64_t>(stepped_));
  put(state, "radii.", radii_.state_dict());
  if (options_.mask()) state.insert("distances", constraints_.distances().cpu().clone());
  if (constraints_.holding())
    for (size_t k = 0; k < constraints_.held().size(); ++k)
      state.insert("unprojected." + constraints_.names()[k], constraints_.held()[k].cpu().clone());
  return state;
}

void Ftp::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  TORCH_CHECK(state.contains("stepped"),
              "[Ftp] the state has no 'stepped': an earlier version of tpgm saved it, or "
              "another method. Start the run again");
  const bool stepped = get_int(state, "stepped") != 0;
  const auto find = [&](const std::string& name) {
    const auto* tensor = state.find(name);
    TORCH_CHECK(tensor, "[Ftp] the state has no '", name, "'; it was not saved by this method");
    return *tensor;
  };
  std::vector<at::Tensor> held;
  if (holds_ && stepped)
    for (const auto& name : constraints_.names()) held.push_back(find("unprojected." + name));
  const auto distances = options_.mask() ? find("distances") : at::Tensor();
  TORCH_CHECK(!distances.defined() || distances.sizes() == constraints_.distances().sizes(),
              "[Ftp] the state is damaged: it has the distances of ", distances.numel(), " rows, not of ",
              constraints_.distances().numel());
  radii_.load_state_dict(name_, get_part(state, "radii."));
  constraints_.load_held(held);
  if (distances.defined()) constraints_.load_distances(distances);
  stepped_ = stepped;
  slopes_.reset();
}

}  // namespace tpgm

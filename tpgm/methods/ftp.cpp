#include "tpgm/methods/ftp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include "tpgm/base/call.h"
#include "tpgm/io/state_dict.h"

namespace tpgm {

Ftp::Ftp(const ModuleView& model, FtpOptions options)
    : Ftp(model, model.named_parameters(), std::move(options)) {}

Ftp::Ftp(const ModuleView& model, const NamedTensors& anchor, FtpOptions options)
    : AnchoredMethod("Ftp", model, anchor, options, options.norm()),
      options_(std::move(options)),
      radii_(RadiiOptions().init(RadiusInit::kEps).lr(options_.radius_lr()), displacements_.names(),
             displacements_.scalar_options(), displacements_.flag().report()),
      held_(displacements_) {
  TORCH_CHECK(options_.k() >= 0 && options_.k() <= 1, "[Ftp] k must be in [0, 1], not ", options_.k());
  holds_ = !displacements_.keep_directions();
}

// Calls look(), which checks for errors. On CUDA the failed step is already complete when its error arrives;
// the radii then continue without it.
template <class Look>
void Ftp::or_forget(Look&& look) {
  try {
    look();
  } catch (...) {
    held_.release();
    stepped_ = false;
    radius_gradients_.reset();
    throw;
  }
}

void Ftp::check() {
  or_forget([this] { displacements_.flag().check(); });
}

void Ftp::finish(const Closure&) { check(); }

std::optional<StepPlan> Ftp::next_step() const {
  return radii_.initialised() && stepped_ ? std::optional(StepPlan()) : std::nullopt;
}

void Ftp::replayed() {
  or_forget([this] { poll(); });
  post();
}

void Ftp::before_step() {
  or_forget([this] { poll(); });
  if (stepped_) {
    const auto rows = options_.mask() ? Rows::kBeyond : Rows::kAll;
    const auto all =
        displacements_.measure_radius_gradients(displacements_.gradients(), radii_.values(), rows)
            .radius_gradients;
    radius_gradients_ = at::where(all > 0, all * options_.k(), all);
  }
}

void Ftp::after_step(const Closure&) {
  TORCH_CHECK(!stepped_ || radius_gradients_,
              "[Ftp] after_step() without before_step(); call it after backward()");
  const auto learn = [this] {
    if (radius_gradients_) radii_.update(*radius_gradients_, radii_.distances());  // of the previous step
  };
  if (radii_.initialised() && !holds_ && displacements_.device().is_cuda()) {
    radii_.remember();
    learn();
    const auto& radii = radii_.prepare_before_measuring();
    try {
      displacements_.measure_and_project(radii);
    } catch (...) {
      radii_.go_back();
      throw;
    }
    radii_.prepare(displacements_.smallest(), displacements_.largest());
  } else {
    holds_ ? held_.hold() : displacements_.measure();  // on the CPU this throws before anything has changed
    radii_.must_wait() ? check() : radii_.remember();
    learn();
    displacements_.project(radii_.prepare(displacements_.smallest(), displacements_.largest()));
  }
  radius_gradients_.reset();
  stepped_ = true;
  post();
}

NamedNumbers Ftp::radii() const {
  return radii_.initialised() ? displacements_.by_name(radii_.values()) : NamedNumbers();
}

NamedNumbers Ftp::ratios() const {
  return radii_.initialised() ? displacements_.by_name(radii_.ratios()) : NamedNumbers();
}

NamedTensors Ftp::state_dict() const {
  auto state = AnchoredMethod::state_dict();
  put(state, "stepped", static_cast<int64_t>(stepped_));
  state.update(with_prefix(radii_.state_dict(), "radii."));
  if (options_.mask()) state.insert("distances", displacements_.distances().cpu().clone());
  if (held_.holds())
    for (size_t k = 0; k < held_.values().size(); ++k)
      state.insert("unprojected." + displacements_.names()[k], held_.values()[k].cpu().clone());
  return state;
}

void Ftp::load_state_dict(const NamedTensors& state) try {
  AnchoredMethod::load_state_dict(state);
  TORCH_CHECK(state.contains("stepped"),
              "the state has no 'stepped': an earlier version of tpgm saved it, or "
              "another method. Start the run again");
  const bool stepped = get_int(state, "stepped") != 0;
  const auto find = [&](const std::string& name) {
    const auto* tensor = state.find(name);
    TORCH_CHECK(tensor, "the state has no '", name, "'; it was not saved by this method");
    return *tensor;
  };
  std::vector<at::Tensor> held;
  if (holds_ && stepped)
    for (const auto& name : displacements_.names()) held.push_back(find("unprojected." + name));
  const auto distances = options_.mask() ? find("distances") : at::Tensor();
  TORCH_CHECK(!distances.defined() || distances.sizes() == displacements_.distances().sizes(),
              "the state is damaged: it has the distances of ", distances.numel(), " rows, not of ",
              displacements_.distances().numel());
  radii_.load_state_dict(below(state, "radii."));
  held_.load(held);
  if (distances.defined()) displacements_.load_distances(distances);
  stepped_ = stepped;
  radius_gradients_.reset();
} catch (...) {
  rethrow_from(name_);
}

}  // namespace tpgm

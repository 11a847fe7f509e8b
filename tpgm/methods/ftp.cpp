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
  constraints_.keep_held_memory();
}

/// look() for errors. On CUDA the step that went wrong has held its weights before anybody knew; after an
/// error the radii go on without that step.
template <class Look>
void Ftp::or_forget(Look&& look) {
  try {
    look();
  } catch (...) {
    constraints_.release();
    slopes_.reset();
    throw;
  }
}

void Ftp::check() {
  or_forget([this] { constraints_.check(); });
}

void Ftp::finish(const Closure&) { check(); }

std::optional<StepPlan> Ftp::next_step() const {
  return radii_.initialised() && constraints_.holding() ? std::optional(StepPlan()) : std::nullopt;
}

void Ftp::replayed() {
  or_forget([this] { constraints_.poll(); });
  constraints_.post();
}

void Ftp::before_step() {
  or_forget([this] { constraints_.poll(); });
  if (constraints_.holding()) {  // there was a step before
    const auto slopes = constraints_.slopes(constraints_.gradients(), radii_.values(),
                                            options_.mask() ? kernels::Rows::kBeyond : kernels::Rows::kAll);
    slopes_ = at::where(slopes > 0, slopes * options_.k(), slopes);
  }
}

void Ftp::after_step(const Closure&) {
  TORCH_CHECK(!constraints_.holding() || slopes_,
              "[Ftp] after_step() without before_step(); call it after backward()");
  constraints_.measure(/*hold=*/true);
  if (!radii_.initialised()) {
    check();
  } else {
    radii_.save_at_next_call();
  }
  if (slopes_) {
    radii_.update(*slopes_, radii_.distances());  // those of the step before
    slopes_.reset();
  }
  constraints_.project(radii_.prepare(constraints_.smallest(), constraints_.largest()));
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
  put(state, "radii.", radii_.state_dict());
  if (constraints_.holding()) {
    for (std::size_t k = 0; k < constraints_.held().size(); ++k) {
      state.insert("unprojected." + constraints_.names()[k], constraints_.held()[k].cpu().clone());
    }
  }
  return state;
}

void Ftp::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  const auto unprojected = get_part(state, "unprojected.");
  std::vector<at::Tensor> held;
  for (const auto& name : unprojected.is_empty() ? std::vector<std::string>() : constraints_.names()) {
    const auto* tensor = unprojected.find(name);
    TORCH_CHECK(tensor, "[Ftp] the state has no 'unprojected.", name, "'; it was not saved by this method");
    held.push_back(*tensor);
  }
  radii_.load_state_dict(name_, get_part(state, "radii."));
  constraints_.load_held(held);
  slopes_.reset();
}

}  // namespace tpgm

// The training loop.
#include "tpgm/train/trainer.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "tpgm/data/mix.h"
#include "tpgm/methods/anchored_method.h"
#include "tpgm/train/diagnosis.h"
#include "tpgm/train/from_options.h"

namespace tpgm {
namespace {

using Json = RunLog::Json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Trainer::Trainer(Setup& setup, RunLog* log, TrainCallbacks callbacks, std::optional<BatchSource> train)
    : setup_(setup),
      log_(log),
      callbacks_(std::move(callbacks)),
      options_(setup.options),
      model_(*setup.model),
      method_(*setup.method),
      train_loader_(train ? nullptr : training_loader(setup)),
      radius_loader_(method_.needs_radius_data() ? radius_loader(setup) : nullptr),
      selection_loader_(setup.data.selection.size() > 0 ? evaluation_loader(setup, setup.data.selection)
                                                        : nullptr),
      train_(train ? std::move(*train) : batches_of(*train_loader_)),
      steps_per_epoch_(std::max<int64_t>(1, train_.batches / options_.grad_accum_steps)),
      schedule_(phases_of(options_), steps_per_epoch_, schedule_of(options_)),
      optimizer_(optimizer_of(options_, model_)),
      training_step_(model_, method_, optimizer_, step_of(options_)),
      ema_(options_.model_ema
               ? std::make_unique<Ema>(model_, options_.model_ema_decay, options_.model_ema_warmup)
               : nullptr),
      parts_{model_, optimizer_, method_, ema_.get(), setup.device} {
  check_options(mix_of(options_));
  if (radius_loader_) radius_.emplace(batches_of(*radius_loader_), state_.radius_batches);
  if (log_) state_.data = fingerprint_of(setup.data);
}

Trainer::~Trainer() = default;

TrainResult Trainer::run() {
  const KernelFlags flags(options_.deterministic);
  load_state();
  try {
    while (!done()) {
      train_epoch();
      end_epoch();
    }
    finish();
    result_.finished = true;
  } catch (const Stopped&) {
    result_.finished = false;
  }
  result_.steps = state_.step;
  result_.skipped_steps = state_.skipped;
  result_.best_epoch = state_.best_epoch;
  result_.diagnosis = state_.diagnosis;
  result_.seconds = clock_.seconds();
  if (result_.finished && log_) log_->finish(to_json(result_, options_));
  return result_;
}

bool Trainer::done() const {
  // Patience begins anew with the last phase.
  const int64_t since = std::max(state_.best_epoch, options_.lp_epochs.value_or(0));
  const bool patient = options_.patience == 0 || state_.epochs_done - since < options_.patience;
  return state_.epochs_done == options_.epochs || !patient;
}

void Trainer::train_epoch() {
  const int64_t end = (state_.epochs_done + 1) * steps_per_epoch_;
  if (state_.step < end)
    train_.start(state_.epochs_done, state_.step % steps_per_epoch_ * options_.grad_accum_steps);
  clock_.restart(state_.window);
  while (state_.step < end) {
    const int64_t step = state_.step;
    if (schedule_.phase(step) != (step > 0 ? schedule_.phase(step - 1) : 0)) begin_phase();
    train_step();
    const bool last = state_.step == end;
    if (state_.step % options_.log_every == 0 || last) log_step();
    if (stop_asked()) {
      save_state();
      throw Stopped();
    }
    if (options_.checkpoint_every > 0 && state_.step % options_.checkpoint_every == 0 && !last) save_state();
  }
}

void Trainer::begin_phase() {
  if (auto* phases = dynamic_cast<HasPhases*>(&method_)) phases->next_phase();
  optimizer_.reset();
  state_.best = -1;  // the result is one of this phase
  say(fmt::format("phase {} begins", schedule_.phases()[schedule_.phase(state_.step)].name));
}

// work(). If it fails, and a loss that is not finite came before, that says more.
template <class Work>
auto Trainer::or_for_a_loss(Work&& work) {
  try {
    return work();
  } catch (const std::exception&) {  // kernels throw errors that are not LibTorch's
    read_losses(0);
    throw;
  }
}

void Trainer::train_step() {
  const bool skips = options_.on_nan == OnNan::kSkip;
  // The forward pass moves BatchNorm's statistics, which one bad batch would spoil for good.
  std::vector<at::Tensor> buffers;
  if (skips) {
    for (const auto& buffer : model_.buffers()) buffers.push_back(buffer.clone());
  }
  StepLoss loss(state_.step);
  const double lr = schedule_.lr(state_.step);
  const bool updated = take_step(loss, lr);
  const bool read = !loss.indices().empty();
  if (read) loss.send();
  if (read && (!skips || std::isfinite(loss.sums().loss))) {
    losses_.push(std::move(loss));
    if (setup_.device.is_cpu()) read_losses(0);  // throws before a bad gradient reaches the weights
    if (!updated) or_for_a_loss([&] { training_step_.update(lr, [this] { return next_radius_batch(); }); });
    if (ema_) ema_->update();
    read_losses(1);  // the device is busy with this step while we look at the one before
  } else {
    training_step_.skip();
    for (size_t i = 0; i < buffers.size(); ++i) model_.buffers()[i].copy_(buffers[i]);
    ++state_.skipped;
    say(fmt::format("step {}: skipped, {} ({} in all)", state_.step + 1,
                    read ? "its loss is not finite" : "none of its images could be read", state_.skipped));
  }
  ++state_.step;
  clock_.count_step();
  tell_progress();
}

// The step's batches, forward and backward; or all of the step, where it is in a CUDA graph: true then.
bool Trainer::take_step(StepLoss& loss, double lr) {
  const int64_t first = state_.step % steps_per_epoch_ * options_.grad_accum_steps;
  bool updated = false;
  for (int64_t i = 0; i < options_.grad_accum_steps; ++i) {
    const auto batch = train_.next();
    TORCH_CHECK(batch, "[Trainer::run] the training data ended before the epoch did");
    if (batch->indices.empty()) continue;  // none of its images could be read
    const auto [images, targets] =
        mix_batch(*batch, options_, state_.epochs_done, first + i, model_.num_classes());
    // To skip a step its loss must be known before the update.
    updated = options_.on_nan != OnNan::kSkip && training_step_.captures(images, batch->labels, targets);
    const auto result = updated ? or_for_a_loss([&] {
      return training_step_.step(images, batch->labels, targets, lr, [this] { return next_radius_batch(); });
    })
                                : training_step_.backward(images, batch->labels, targets);
    loss.add(result, batch->indices);
  }
  return updated;
}

// Takes in losses that have arrived, but for the last `leave`, which may not have.
void Trainer::read_losses(size_t leave) {
  losses_.read(leave, [this](const StepLoss& loss, const LossSums& sums) {
    if (!std::isfinite(sums.loss)) stop_for(loss, sums);
    for (auto* all : {&state_.epoch, &state_.window}) {
      all->loss += sums.loss;
      all->correct += sums.correct;
      all->images += sums.images;
    }
  });
}

void Trainer::stop_for(const StepLoss& loss, const LossSums& sums) {
  std::vector<std::string> places;
  for (const int64_t index : loss.indices())
    places.push_back(train_.place ? train_.place(index) : std::to_string(index));
  std::string where;
  if (log_)
    where = fmt::format(" (all in {})",
                        log_->save_text("bad_batch", fmt::format("{}\n", fmt::join(places, "\n"))).string());
  const double mean = sums.mean_loss();
  TORCH_CHECK(false, "[Trainer::run] step ", loss.step() + 1, ": the loss is ",
              std::isnan(mean) ? "nan" : fmt::format("{}", mean), ". The batch: ", first_places(places),
              where, "; ", last_good_state(), ". A smaller `lr`, `clip-grad` 1 or `on-nan` skip may help");
}

TrainingStep::RadiusBatch Trainer::next_radius_batch() {
  if (finishing_) {
    if (stop_asked()) throw Stopped();  // finish() begins anew then
    if (log_) finishing_->note(method_);
  }
  TORCH_CHECK(radius_, "[Trainer::run] ", options_.method, " asks for radius data, and there are none");
  const Batch batch = radius_->next();  // counts itself
  const auto [images, targets] =
      mix_radius_batch(batch, options_, state_.radius_batches, model_.num_classes());
  return {images, targets};
}

// The radius loss of a step of finish(), which takes so many.
at::Tensor Trainer::finishing_loss(int64_t steps) {
  at::Tensor loss = training_step_.radius_loss(next_radius_batch());
  const int64_t step = ++finishing_steps_;
  if (callbacks_.radii) {
    const double each = RunClock::since(clock_.window) / static_cast<double>(step);
    callbacks_.radii(
        {step, steps, loss.detach(), each * static_cast<double>(std::max<int64_t>(0, steps - step))});
  }
  return loss;
}

void Trainer::tell_progress() {
  if (!callbacks_.progress) return;
  TrainProgress at{
      phase_name(), state_.epochs_done + 1, options_.epochs, state_.step, schedule_.steps(), {}, 0};
  const auto& sums = state_.window;
  if (clock_.knows(sums)) at.numbers = {clock_.images_s(sums), sums.mean_loss(), sums.accuracy()};
  at.seconds_left =
      clock_.seconds_left(schedule_.steps() - state_.step, options_.epochs - state_.epochs_done);
  callbacks_.progress(at);
}

void Trainer::log_step() {
  read_losses(0);
  const auto& sums = state_.window;
  const double lr = schedule_.lr(state_.step - 1), images_s = clock_.images_s(sums);
  if (log_) {
    log_->log({{"event", "step"},
               {"step", state_.step},
               {"epoch", state_.epochs_done + 1},
               {"phase", phase_name()},
               {"lr", lr},
               {"loss", json_number(sums.mean_loss())},
               {"accuracy", json_number(sums.accuracy())},
               {"images_s", json_number(images_s)},
               {"seconds", clock_.seconds()}});
    log_->scalar("train/loss", sums.mean_loss(), state_.step);
    log_->scalar("train/accuracy", sums.accuracy(), state_.step);
    log_->scalar("train/lr", lr, state_.step);
    log_->scalar("train/images_s", images_s, state_.step);
    log_->radii(state_.step, radii_of(method_), ratios_of(method_));
  }
  const bool first =
      state_.epochs_done == 0 && state_.first_loss < 0;  // not after the state of an older version
  if (first && sums.images > 0) state_.first_loss = sums.mean_loss();
  state_.window = {};
  clock_.restart(state_.window);
}

// Says once what is wrong with the strength of the method.
void Trainer::diagnose() {
  if (!state_.diagnosis.empty()) return;
  state_.diagnosis = diagnosis_text(method_, state_, state_.epoch.mean_loss(), schedule_.steps(), done());
  if (state_.diagnosis.empty()) return;
  say(state_.diagnosis);
  if (log_) log_->log({{"event", "diagnosis"}, {"step", state_.step}, {"text", state_.diagnosis}});
}

std::optional<Accuracy> Trainer::select() {
  if (!selection_loader_) return std::nullopt;
  const auto begin = RunClock::now();
  EvaluateOptions options;
  options.amp = options_.amp;
  auto accuracy = evaluate(model_, *selection_loader_, options);
  TORCH_CHECK(accuracy.images > 0, "[Trainer::run] none of the selection data can be read");
  clock_.count_evaluation(begin);
  return accuracy;
}

void Trainer::end_epoch() {
  read_losses(0);
  method_.check();
  check_weights();
  if (ema_) ema_->swap();
  const auto selected = select();
  ++state_.epochs_done;
  const bool better = !selected || selected->top1() > state_.best;
  if (better) {
    state_.best = selected ? selected->top1() : -1;
    state_.best_epoch = state_.epochs_done;
    keep_best();
  }
  if (log_) log_epoch(selected, better);
  const auto& sums = state_.epoch;
  say(fmt::format(
      "epoch {}/{}: {}{}", state_.epochs_done, options_.epochs,
      sums.images > 0 ? fmt::format("loss {:.4f}, accuracy {:.2f} %", sums.mean_loss(), sums.accuracy())
                      : "every step was skipped",
      selected ? fmt::format("; selection {:.2f} %{}", selected->top1(), better ? ", the best so far" : "")
               : ""));
  if (ema_) ema_->swap();
  diagnose();
  state_.epoch = {};
  save_state();
}

void Trainer::log_epoch(const std::optional<Accuracy>& selected, bool better) {
  log_->save_weights("last", state_dict(model_), setup_.metadata);
  const Json row = {{"epoch", state_.epochs_done},
                    {"step", state_.step},
                    {"phase", phase_name()},
                    {"lr", schedule_.lr(state_.step - 1)},
                    {"train_loss", json_number(state_.epoch.mean_loss())},
                    {"train_accuracy", json_number(state_.epoch.accuracy())},
                    {"selection_loss", json_number(selected ? selected->loss : kNone)},
                    {"selection_accuracy", json_number(selected ? selected->top1() : kNone)},
                    {"best", better}};
  log_->epoch(row);
  Json line = row;
  line["event"] = "epoch";
  line["seconds"] = clock_.seconds();
  log_->log(line);
  if (selected) {
    log_->scalar("selection/accuracy", selected->top1(), state_.step);
    log_->scalar("selection/loss", selected->loss, state_.step);
  }
}

void Trainer::finish() {
  if (state_.epochs_done < options_.epochs)
    say(fmt::format("stopped early: no better epoch since {}", state_.best_epoch));
  load_best();
  training_step_.forget();                              // its memory is for the method and the tests now
  finishing_.emplace(setup_.device.is_cuda() ? 4 : 1);  // there each look at radii waits for the device
  clock_.window = RunClock::now();
  if (!finished_best_)
    method_.finish([this, steps = final_radius_steps(options_)] { return finishing_loss(steps); });
  if (log_) finishing_->write(*log_, state_.step, method_);
  const auto selected = select();
  result_.selection = selected ? selected->top1() : kNone;
  result_.selection_images = selected ? selected->images : 0;
  if (const auto* anchored = dynamic_cast<const AnchoredMethod*>(&method_))
    result_.relative_distance = anchored->relative_distance();
  if (const auto returned = returned_tensors(method_); selected && !returned.empty())
    say(fmt::format("{}; selection {}{:.2f} %", returned,
                    state_.best < 0 ? "" : fmt::format("{:.2f} % → ", state_.best), result_.selection));
  result_.tests = score_tests(setup_, log_, state_.step, [this] {
    if (stop_asked()) throw Stopped();
  });
  finished_best_ = true;
  keep_best();
  for (const auto& text : unreadable_images({{train_loader_.get(), "training"},
                                             {radius_loader_.get(), "radius"},
                                             {selection_loader_.get(), "selection"}},
                                            result_.tests))
    say(text);
}

// The weights as they are now become the best, which is the result in the end.
void Trainer::keep_best() {
  if (log_) {
    Metadata metadata = setup_.metadata;
    keys::kFinished.set(metadata, finished_best_);
    log_->save_weights("best", state_dict(model_), metadata);
    return;
  }
  best_weights_.clear();
  for (const auto& item : state_dict(model_)) best_weights_.insert(item.key(), item.value().clone());
}

void Trainer::load_best() {
  if (state_.epochs_done == 0) {
    finished_best_ = false;
  } else if (log_) {
    const auto best = log_->load_weights("best");
    load_state_dict(model_, best.tensors, {}, best.path);
    // A run that was killed after the method's finish() and before its result was written.
    finished_best_ = keys::kFinished.of(best.metadata);
  } else {
    load_state_dict(model_, best_weights_);
  }
}

void Trainer::check_weights() const {
  if (log_) check_finite(model_, state_.step, last_good_state());
}

void Trainer::save_state() {
  read_losses(0);
  method_.check();
  check_weights();
  if (!log_) return;
  RunState state = state_;
  state.seconds = clock_.seconds();
  log_->save_state(tensors_of(parts_), to_json(state));
  saved_step_ = state_.step;
}

void Trainer::load_state() {
  if (!log_) return;
  const auto saved = log_->load_state();
  if (!saved) return;
  const auto state = run_state_of(saved->numbers, options_.epochs, steps_per_epoch_, log_->state_path());
  TORCH_CHECK(state.data == state_.data, "[Trainer::run] cannot resume '", log_->path().string(),
              "': the training, radius or selection data are not those the run was begun with");
  load_tensors(parts_, saved->tensors, log_->state_path());
  state_ = state;
  clock_.before = state_.seconds;
  saved_step_ = state_.step;
  say(fmt::format("resuming at step {} of {}", state_.step, schedule_.steps()));
}

std::string Trainer::last_good_state() const {
  if (!log_ || saved_step_ < 0) return "there is no checkpoint yet";
  return fmt::format("the last good state is {} of step {}", log_->state_path().string(), saved_step_);
}

void Trainer::say(const std::string& text) const {
  if (callbacks_.say) callbacks_.say(text);
}

}  // namespace tpgm

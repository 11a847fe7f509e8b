// The training loop, and the state of a run.
#include "tpgm/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <exception>
#include <limits>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/mix.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/io/safetensors.h"

namespace tpgm {
namespace {

using Json = RunFolder::Json;

constexpr uint64_t kMixPurpose = 0x3141;
constexpr size_t kMostLastRadii = 100;  // points of a curve
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Times the rate, for the head.
double head_scale(const TrainOptions& options) {
  return options.head_lr && options.lr > 0 ? *options.head_lr / options.lr : 1;
}

std::vector<Phase> phases_of(const TrainOptions& options) {
  const int64_t probing = options.lp_epochs.value_or(0);
  std::vector<Phase> phases;
  // --lp-lr is the head's rate as it is.
  if (options.lp_epochs)
    phases.push_back({"lp", probing, options.lp_lr.value_or(options.lr) / head_scale(options), 0});
  phases.push_back({options.lp_epochs ? "ft" : options.method, options.epochs - probing, options.lr,
                    std::min(options.warmup_epochs, options.epochs - probing)});
  return phases;
}

ScheduleOptions schedule_of(const TrainOptions& options) {
  return ScheduleOptions()
      .sched(parse_sched(options.sched))
      .on_updates(options.sched_on_updates)
      .min_lr(options.min_lr)
      .warmup_lr(options.warmup_lr)
      .decay_epochs(options.decay_epochs)
      .decay_rate(options.decay_rate);
}

Optimizer optimizer_of(const TrainOptions& options, const Classifier& model) {
  std::vector<std::string> blocks;
  for (const auto& block : model.backbone->blocks()) blocks.push_back("backbone." + block);
  auto groups = parameter_groups(model.named_parameters(), blocks,
                                 GroupOptions()
                                     .weight_decay(options.weight_decay)
                                     .decay_all(options.decay_all)
                                     .layer_decay(options.layer_decay)
                                     .head_scale(head_scale(options)));
  return {std::move(groups), OptimOptions()
                                 .opt(parse_opt(options.opt))
                                 .momentum(options.momentum)
                                 .nesterov(options.nesterov)
                                 .betas({options.opt_betas[0], options.opt_betas[1]})
                                 .eps(options.opt_eps)};
}

MixOptions mix_of(const TrainOptions& options) {
  return MixOptions()
      .mixup(options.mixup)
      .cutmix(options.cutmix)
      .prob(options.mixup_prob)
      .switch_prob(options.mixup_switch_prob)
      .smoothing(options.smoothing);
}

std::unique_ptr<Loader> loader_of(const Setup& setup, const SampleSubset& subset, int64_t batch_size,
                                  bool train, bool shuffle) {
  LoaderOptions options = setup.pictures.loader;
  options.batch_size(batch_size).shuffle(shuffle).drop_last(shuffle);
  View view = setup.pictures.eval;
  if (train && setup.pictures.augment) view = setup.pictures.train;
  return std::make_unique<Loader>(subset, view, options);
}

void put(NamedTensors& all, const std::string& prefix, const NamedTensors& part) {
  for (const auto& item : part) all.insert(prefix + item.key(), item.value());
}

NamedTensors part_of(const NamedTensors& all, const std::string& prefix) {
  NamedTensors part;
  for (const auto& item : all) {
    if (item.key().starts_with(prefix)) part.insert(item.key().substr(prefix.size()), item.value());
  }
  return part;
}

at::Generator generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

// Which pictures are trained on, in which order, and what is held out (FNV-1a of names and labels).
std::string fingerprint_of(const RunData& data) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&hash](std::string_view bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  };
  for (const auto* subset : {&data.train, &data.radius, &data.selection}) {
    add(fmt::format("{};", subset->size()));
    for (const int64_t i : subset->indices) {
      add(subset->samples->name(i));
      add(fmt::format(":{};", subset->samples->label(i)));
    }
  }
  return fmt::format("{:016x}", hash);
}

double per_cent(double part, double whole) { return whole > 0 ? 100 * part / whole : kNone; }

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double mean_of(const std::vector<TestResult>& tests, bool id) {
  double sum = 0, count = 0;
  for (const auto& test : tests) {
    if (test.id != id) continue;
    sum += test.accuracy.top1();
    ++count;
  }
  return count > 0 ? sum / count : kNone;
}

}  // namespace

/// A loss on its way from the device.
struct Trainer::Pending {
  int64_t step;
  at::Tensor numbers;  // loss and right, on the host once `ready`
  std::unique_ptr<c10::Event> ready;
  std::vector<int64_t> indices;
};

/// How long things take, and what the last log line was about.
struct Trainer::Clock {
  using Time = std::chrono::steady_clock::time_point;
  static double since(Time begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  Time begin = std::chrono::steady_clock::now(), window = begin;
  double loss = 0, right = 0, images = 0;  // sums over the window
  double images_before = 0;                // of them, those of the process before this one
  double training = 0, evaluation = 0;     // seconds, in this process
  int64_t steps = 0, evaluations = 0;

  double images_s() const { return (images - images_before) / std::max(since(window), 1e-9); }
  /// Only the time: a run that goes on in the middle of a window has sums already.
  void restart() {
    window = std::chrono::steady_clock::now();
    images_before = images;
  }
};

BatchSource batches_of(Loader& loader) {
  return {loader.batches(), [&](int64_t epoch, int64_t first) { loader.start(epoch, first); },
          [&] { return loader.next(); },
          [&](int64_t index) { return loader.subset().samples->place(index); }};
}

Trainer::Trainer(Setup& setup, RunFolder* folder, TrainCallbacks callbacks, std::optional<BatchSource> train)
    : setup_(setup),
      folder_(folder),
      callbacks_(std::move(callbacks)),
      options_(setup.options),
      model_(*setup.model),
      method_(*setup.method),
      train_loader_(train ? nullptr : loader_of(setup, setup.data.train, options_.batch_size, true, true)),
      radius_loader_(
          method_.needs_radius_data() && setup.data.radius.size() > 0
              ? loader_of(setup, setup.data.radius, options_.radius_batch_size.value_or(1), false, true)
              : nullptr),
      selection_loader_(setup.data.selection.size() > 0
                            ? loader_of(setup, setup.data.selection,
                                        options_.validation_batch_size.value_or(1), false, false)
                            : nullptr),
      train_(train ? std::move(*train) : batches_of(*train_loader_)),
      steps_per_epoch_(std::max<int64_t>(1, train_.batches / options_.grad_accum_steps)),
      schedule_(phases_of(options_), steps_per_epoch_, schedule_of(options_)),
      optimizer_(optimizer_of(options_, model_)),
      training_step_(model_, method_, optimizer_,
                     StepOptions()
                         .amp(options_.amp)
                         .cuda_graph(options_.cuda_graph)
                         .batches(options_.grad_accum_steps)
                         .clip_grad(options_.clip_grad)
                         .smoothing(options_.smoothing)
                         .contrastive(options_.head == "text")),
      clock_(std::make_unique<Clock>()) {
  check_options(mix_of(options_));
  if (radius_loader_) radius_ = batches_of(*radius_loader_);
  if (options_.model_ema) ema_ = std::make_unique<Ema>(model_, options_.model_ema_decay);
  if (folder_) data_fingerprint_ = fingerprint_of(setup.data);
  auto& context = at::globalContext();
  context.setBenchmarkCuDNN(!options_.deterministic);
  context.setDeterministicCuDNN(options_.deterministic);
  context.setDeterministicAlgorithms(options_.deterministic, /*warn_only=*/true);
}

Trainer::~Trainer() = default;

TrainResult Trainer::run() {
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
  result_.steps = step_;
  result_.skipped_steps = skipped_;
  result_.best_epoch = best_epoch_;
  result_.seconds = seconds_before_ + Clock::since(clock_->begin);
  if (result_.finished && folder_) folder_->finish(to_json(result_, options_));
  return result_;
}

bool Trainer::done() const {
  // Patience begins anew with the last phase.
  const int64_t since = std::max(best_epoch_, options_.lp_epochs.value_or(0));
  const bool patient = options_.patience == 0 || epochs_done_ - since < options_.patience;
  return epochs_done_ == options_.epochs || !patient;
}

void Trainer::train_epoch() {
  const int64_t end = (epochs_done_ + 1) * steps_per_epoch_;
  if (step_ < end) train_.start(epochs_done_, step_ % steps_per_epoch_ * options_.grad_accum_steps);
  clock_->restart();
  while (step_ < end) {
    if (schedule_.phase(step_) != (step_ > 0 ? schedule_.phase(step_ - 1) : 0)) {
      if (auto* phases = dynamic_cast<HasPhases*>(&method_)) phases->next_phase();
      optimizer_.reset();
      best_ = -1;  // the result is one of this phase
      say(fmt::format("phase {} begins", schedule_.phases()[schedule_.phase(step_)].name));
    }
    train_step();
    if (step_ % options_.log_every == 0 || step_ == end) log_step();
    if (stop_asked()) {
      save_state();
      throw Stopped();
    }
    if (options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0 && step_ < end) save_state();
  }
}

// work(). Of its errors and a loss that is not finite the loss says more.
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
  Pending pending{step_, {}, nullptr, {}};
  const int64_t first = step_ % steps_per_epoch_ * options_.grad_accum_steps;
  // The forward pass moves BatchNorm's statistics, which one bad batch would spoil for good.
  std::vector<at::Tensor> buffers;
  if (options_.on_nan == "skip") {
    for (const auto& buffer : model_.buffers()) buffers.push_back(buffer.clone());
  }
  const auto radius_data = [this] { return next_radius_batch(); };
  const double lr = schedule_.lr(step_);
  bool updated = false;
  for (int64_t i = 0; i < options_.grad_accum_steps; ++i) {
    const auto batch = train_.next();
    TORCH_CHECK(batch, "[train] the training data ended before the epoch did");
    if (batch->indices.empty()) continue;  // none of its pictures could be read
    Random random(static_cast<uint64_t>(options_.seed), static_cast<uint64_t>(epochs_done_),
                  static_cast<uint64_t>(first + i), kMixPurpose);
    const Mix mix = draw_mix(mix_of(options_), batch->images.size(2), batch->images.size(3), random);
    const bool mixes = options_.mixup > 0 || options_.cutmix > 0;
    const auto images = mix_images(batch->images, mix);
    const auto targets =
        mixes ? mix_targets(batch->labels, model_.num_classes(), mix, options_.smoothing) : batch->labels;
    // To skip a step its loss must be known before the update.
    updated = options_.on_nan != "skip" && training_step_.records(images, batch->labels, targets);
    const auto result = updated ? or_for_a_loss([&] {
      return training_step_.step(images, batch->labels, targets, lr, radius_data);
    })
                                : training_step_.backward(images, batch->labels, targets);
    const auto share = static_cast<double>(batch->indices.size());
    const auto numbers = at::stack({result.loss.to(at::kDouble) * share, result.right.to(at::kDouble)});
    pending.numbers = pending.numbers.defined() ? pending.numbers + numbers : numbers;
    pending.indices.insert(pending.indices.end(), batch->indices.begin(), batch->indices.end());
  }

  bool bad = pending.indices.empty();
  if (!bad && setup_.device.is_cuda()) {
    pending.numbers =
        at::empty({2}, at::TensorOptions(at::kDouble).pinned_memory(true)).copy_(pending.numbers, true);
    pending.ready = std::make_unique<c10::Event>(setup_.device.type());
    pending.ready->record(c10::impl::VirtualGuardImpl(setup_.device.type()).getStream(setup_.device));
  }
  if (!bad && options_.on_nan == "skip") {
    if (pending.ready) pending.ready->synchronize();
    bad = !std::isfinite(pending.numbers[0].item<double>());
  }
  if (bad) {
    training_step_.skip();
    for (size_t i = 0; i < buffers.size(); ++i) model_.buffers()[i].copy_(buffers[i]);
    ++skipped_;
    say(fmt::format("step {}: skipped, {} ({} in all)", step_ + 1,
                    pending.indices.empty() ? "none of its pictures could be read" : "its loss is not finite",
                    skipped_));
  } else {
    pending_.push_back(std::move(pending));
    if (setup_.device.is_cpu()) read_losses(0);  // throws before a bad gradient reaches the weights
    if (!updated) or_for_a_loss([&] { training_step_.update(lr, radius_data); });
    if (ema_) ema_->update();
    read_losses(1);  // the device is busy with this step while we look at the one before
  }
  ++step_;
  ++clock_->steps;
  if (!callbacks_.progress) return;
  const double each = Clock::since(clock_->begin) - clock_->evaluation;
  const auto left = static_cast<double>(schedule_.steps() - step_);
  const double evaluation =
      clock_->evaluations > 0 ? clock_->evaluation / static_cast<double>(clock_->evaluations) : 0;
  callbacks_.progress({schedule_.phases()[schedule_.phase(step_ - 1)].name, epochs_done_ + 1, options_.epochs,
                       step_, schedule_.steps(), clock_->images_s(), clock_->loss / clock_->images,
                       per_cent(clock_->right, clock_->images),
                       left * each / static_cast<double>(clock_->steps) +
                           evaluation * static_cast<double>(options_.epochs - epochs_done_)});
}

// Takes in losses that have arrived, but for the last `leave`, which may not have.
void Trainer::read_losses(size_t leave) {
  while (pending_.size() > leave) {
    const Pending pending = std::move(pending_.front());
    pending_.pop_front();
    if (pending.ready) pending.ready->synchronize();
    const auto images = static_cast<double>(pending.indices.size());
    const auto* numbers = pending.numbers.const_data_ptr<double>();
    if (!std::isfinite(numbers[0])) stop_for(numbers[0] / images, pending);
    for (auto* sum : {&epoch_loss_, &clock_->loss}) *sum += numbers[0];
    for (auto* sum : {&epoch_right_, &clock_->right}) *sum += numbers[1];
    for (auto* sum : {&epoch_images_, &clock_->images}) *sum += images;
  }
}

void Trainer::stop_for(double loss, const Pending& pending) {
  std::string files, few;
  for (size_t i = 0; i < pending.indices.size(); ++i) {
    const auto place = train_.place ? train_.place(pending.indices[i]) : std::to_string(pending.indices[i]);
    files += place + "\n";
    if (i < 3) few += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(place, kMaxPath));
  }
  std::string where, good = "there is no checkpoint yet";
  if (folder_) {
    write_file(folder_->path() / "bad_batch.txt", files);
    where = fmt::format(" (all in {})", (folder_->path() / "bad_batch.txt").string());
    if (saved_step_ >= 0)
      good = fmt::format("the last good state is {} of step {}",
                         (folder_->path() / "resume.safetensors").string(), saved_step_);
  }
  TORCH_CHECK(false, "[train] step ", pending.step + 1, ": the loss is ",
              std::isnan(loss) ? "nan" : fmt::format("{}", loss), ". The batch: ", few,
              pending.indices.size() > 3 ? fmt::format(" and {} more", pending.indices.size() - 3) : "",
              where, "; ", good, ". A smaller `lr`, `clip-grad` 1 or `on-nan` skip may help");
}

TrainingStep::RadiusBatch Trainer::next_radius_batch() {
  if (finishing_) {
    if (stop_asked()) throw Stopped();  // finish() begins anew then
    if (Clock::since(clock_->window) > 10) {
      say(fmt::format("{} works on its result: {} batches of radius data so far", options_.method,
                      radius_batches_ - finish_began_));
      clock_->window = std::chrono::steady_clock::now();
    }
    note_radii();
  }
  TORCH_CHECK(radius_.next, "[train] ", options_.method, " asks for radius data, and there are none");
  std::optional<Batch> batch;
  for (int64_t tries = 0; !batch || batch->indices.empty(); ++tries) {  // empty: none of it could be read
    TORCH_CHECK(tries < 2 * radius_.batches, "[train] none of the radius data can be read");
    const int64_t epoch = radius_batches_ / radius_.batches;
    if (epoch != radius_epoch_) radius_.start(epoch, radius_batches_ % radius_.batches);
    radius_epoch_ = epoch;
    batch = radius_.next();
    ++radius_batches_;
  }
  return {batch->images, batch->labels};
}

// Radii as the last act moves them. Nobody knows how long it is: when there are many, every other one goes.
void Trainer::note_radii() {
  const int64_t step = last_steps_++;
  if (!folder_ || step % last_stride_ != 0) return;
  last_radii_.emplace_back(step, radii_of(method_));
  if (last_radii_.size() < kMostLastRadii) return;
  last_stride_ *= 2;
  std::erase_if(last_radii_, [this](const auto& each) { return each.first % last_stride_ != 0; });
}

void Trainer::log_step() {
  read_losses(0);
  const double loss = clock_->loss / clock_->images, accuracy = per_cent(clock_->right, clock_->images);
  const double lr = schedule_.lr(step_ - 1);
  if (folder_) {
    folder_->log({{"event", "step"},
                  {"step", step_},
                  {"epoch", epochs_done_ + 1},
                  {"phase", schedule_.phases()[schedule_.phase(step_ - 1)].name},
                  {"lr", lr},
                  {"loss", number(loss)},
                  {"accuracy", number(accuracy)},
                  {"images_s", number(clock_->images_s())},
                  {"seconds", seconds_before_ + Clock::since(clock_->begin)}});
    folder_->scalar("train/loss", loss, step_);
    folder_->scalar("train/accuracy", accuracy, step_);
    folder_->scalar("train/lr", lr, step_);
    folder_->scalar("train/images_s", clock_->images_s(), step_);
    folder_->radii(step_, radii_of(method_), ratios_of(method_));
  }
  clock_->loss = clock_->right = clock_->images = 0;
  clock_->restart();
}

std::optional<Accuracy> Trainer::select() {
  if (!selection_loader_) return std::nullopt;
  const auto begin = std::chrono::steady_clock::now();
  EvaluateOptions options;
  options.amp = options_.amp;
  auto accuracy = evaluate(model_, *selection_loader_, options);
  TORCH_CHECK(accuracy.pictures > 0, "[train] none of the selection data can be read");
  clock_->evaluation += Clock::since(begin);
  ++clock_->evaluations;
  return accuracy;
}

void Trainer::end_epoch() {
  read_losses(0);
  method_.check();
  check_weights();
  if (ema_) ema_->swap();
  const auto selected = select();
  ++epochs_done_;
  const double accuracy = selected ? selected->top1() : kNone;
  const bool better = !selected || accuracy > best_;
  if (better) {
    best_ = selected ? accuracy : -1;
    best_epoch_ = epochs_done_;
    keep_best();
  }
  if (folder_) {
    folder_->save_weights("last", state_dict(model_), setup_.metadata);
    const Json row = {{"epoch", epochs_done_},
                      {"step", step_},
                      {"phase", schedule_.phases()[schedule_.phase(step_ - 1)].name},
                      {"lr", schedule_.lr(step_ - 1)},
                      {"train_loss", number(epoch_loss_ / epoch_images_)},
                      {"train_accuracy", number(per_cent(epoch_right_, epoch_images_))},
                      {"selection_loss", selected ? number(selected->loss) : Json(nullptr)},
                      {"selection_accuracy", number(accuracy)},
                      {"best", better}};
    folder_->epoch(row);
    Json line = row;
    line["event"] = "epoch";
    line["seconds"] = seconds_before_ + Clock::since(clock_->begin);
    folder_->log(line);
    if (selected) {
      folder_->scalar("selection/accuracy", accuracy, step_);
      folder_->scalar("selection/loss", selected->loss, step_);
    }
  }
  say(fmt::format(
      "epoch {}/{}: {}{}", epochs_done_, options_.epochs,
      epoch_images_ > 0 ? fmt::format("loss {:.4f}, accuracy {:.2f} %", epoch_loss_ / epoch_images_,
                                      per_cent(epoch_right_, epoch_images_))
                        : "every step was skipped",
      selected ? fmt::format("; selection {:.2f} %{}", accuracy, better ? ", the best so far" : "") : ""));
  if (ema_) ema_->swap();
  epoch_loss_ = epoch_right_ = epoch_images_ = 0;
  save_state();
}

void Trainer::finish() {
  if (epochs_done_ < options_.epochs)
    say(fmt::format("stopped early: no better epoch since {}", best_epoch_));
  load_best();
  training_step_.forget();  // its memory is for the last act and the tests now
  finishing_ = true;
  finish_began_ = radius_batches_;
  clock_->window = std::chrono::steady_clock::now();
  last_stride_ = setup_.device.is_cuda() ? 4 : 1;  // there each look at them waits for the device
  if (!finished_best_) method_.finish([this] { return training_step_.radius_loss(next_radius_batch()); });
  if (folder_) {
    for (const auto& [step, radii] : last_radii_) folder_->radii(step_, radii, NamedNumbers(), step);
    folder_->radii(step_, radii_of(method_), ratios_of(method_),
                   last_steps_ > 0 ? std::optional(last_steps_) : std::nullopt);
  }
  NamedTensors all_predictions;
  const auto selected = select();
  result_.selection = selected ? selected->top1() : kNone;
  if (const auto ratios = ratios_of(method_); method_.needs_radius_data() && !ratios.is_empty() && selected) {
    const auto values = ratios.values();
    const auto back = std::count_if(values.begin(), values.end(), [](double ratio) { return ratio < 1e-3; });
    say(fmt::format("{} of {} tensors went back to the pre-trained weights; selection {}{:.2f} %", back,
                    values.size(), best_ < 0 ? "" : fmt::format("{:.2f} % → ", best_), result_.selection));
  }
  for (const auto& test : setup_.data.tests) {
    const auto loader =
        loader_of(setup_, test.subset, options_.validation_batch_size.value_or(1), false, false);
    EvaluateOptions options;
    options.amp = options_.amp;
    options.subset = options_.classes == "subset";
    options.progress = [this](size_t) {
      if (stop_asked()) throw Stopped();
    };
    at::Tensor predictions;
    if (folder_) options.predictions = &predictions;
    result_.tests.push_back({test.name, test.id, evaluate(model_, *loader, options)});
    if (folder_) all_predictions.insert(test.name, predictions);
    const auto& accuracy = result_.tests.back().accuracy;
    if (folder_) {
      folder_->log({{"event", "test"},
                    {"name", test.name},
                    {"id", test.id},
                    {"top1", number(accuracy.top1())},
                    {"pictures", accuracy.pictures}});
      folder_->scalar("test/" + test.name, accuracy.top1(), step_);
    }
  }
  if (folder_) folder_->save_predictions(all_predictions);
  finished_best_ = true;
  keep_best();
  say_skipped_pictures();
}

void Trainer::say_skipped_pictures() {
  const std::pair<const Loader*, const char*> loaders[] = {{train_loader_.get(), "training"},
                                                           {radius_loader_.get(), "radius"},
                                                           {selection_loader_.get(), "selection"}};
  for (const auto& [loader, what] : loaders) {
    if (loader == nullptr || loader->skipped().empty()) continue;
    const auto& first = loader->skipped().front();
    say(fmt::format("{} data: {} unreadable and left out, the first is '{}': {}", what,
                    loader->skipped().size(), printable(first.place, kMaxPath),
                    printable(first.reason, kMaxPath)));
  }
  for (const auto& test : result_.tests) {
    if (test.accuracy.skipped > 0)
      say(fmt::format("test {}: {} unreadable and left out", test.name, test.accuracy.skipped));
  }
}

// The weights as they are now become the best, which is the result in the end.
void Trainer::keep_best() {
  if (folder_) {
    Metadata metadata = setup_.metadata;
    if (finished_best_) metadata["tpgm.finished"] = "true";
    folder_->save_weights("best", state_dict(model_), metadata);
    return;
  }
  best_weights_.clear();
  for (const auto& item : state_dict(model_)) best_weights_.insert(item.key(), item.value().clone());
}

void Trainer::load_best() {
  if (epochs_done_ == 0) {
    finished_best_ = false;
  } else if (folder_) {
    const SafetensorsFile best(folder_->path() / "best.safetensors");
    load_state_dict(model_, best.tensors(), {}, best.path());
    // A run that was killed after the method's last act and before its result was written.
    finished_best_ = best.metadata().contains("tpgm.finished");
  } else {
    load_state_dict(model_, best_weights_);
  }
}

// A gradient can be infinite where the loss is not; such weights must not become a checkpoint.
void Trainer::check_weights() const {
  if (!folder_) return;
  const at::NoGradGuard no_grad;
  const auto norms = at::_foreach_norm(model_.parameters(), 2);
  TORCH_CHECK(at::stack(norms).isfinite().all().item<bool>(), "[train] step ", step_,
              ": the weights are not finite any more, though the loss was; ",
              saved_step_ >= 0 ? fmt::format("the last good state is {} of step {}",
                                             (folder_->path() / "resume.safetensors").string(), saved_step_)
                               : "there is no checkpoint yet",
              ". A smaller `lr` or `clip-grad` 1 may help");
}

void Trainer::save_state() {
  read_losses(0);
  method_.check();
  check_weights();
  if (!folder_) return;
  NamedTensors tensors;
  put(tensors, "model.", state_dict(model_));
  put(tensors, "optimizer.", optimizer_.state_dict());
  put(tensors, "method.", method_.state_dict());
  if (ema_) put(tensors, "ema.", ema_->state_dict());
  tensors.insert("random.cpu", generator(at::kCPU).get_state());
  if (setup_.device.is_cuda()) tensors.insert("random.cuda", generator(setup_.device).get_state());
  folder_->save_state(tensors, {{"step", step_},
                                {"data", data_fingerprint_},
                                {"epochs_done", epochs_done_},
                                {"best_epoch", best_epoch_},
                                {"best", best_},
                                {"radius_batches", radius_batches_},
                                {"skipped", skipped_},
                                {"epoch_loss", epoch_loss_},
                                {"epoch_right", epoch_right_},
                                {"epoch_images", epoch_images_},
                                {"window_loss", clock_->loss},
                                {"window_right", clock_->right},
                                {"window_images", clock_->images},
                                {"seconds", seconds_before_ + Clock::since(clock_->begin)}});
  saved_step_ = step_;
}

void Trainer::load_state() {
  if (!folder_) return;
  const auto state = folder_->load_state();
  if (!state) return;
  const auto& numbers = state->numbers;
  TORCH_CHECK(numbers.at("data") == data_fingerprint_, "[train] `resume` '", folder_->path().string(),
              "': the training, radius or selection data are not those the run was begun with");
  load_state_dict(model_, part_of(state->tensors, "model."), {}, folder_->path() / "resume.safetensors");
  method_.load_state_dict(part_of(state->tensors, "method."));
  optimizer_.load_state_dict(part_of(state->tensors, "optimizer."));
  if (ema_) ema_->load_state_dict(part_of(state->tensors, "ema."));
  generator(at::kCPU).set_state(state->tensors["random.cpu"]);
  if (const auto* cuda = state->tensors.find("random.cuda"); cuda && setup_.device.is_cuda())
    generator(setup_.device).set_state(*cuda);
  step_ = numbers.at("step");
  epochs_done_ = numbers.at("epochs_done");
  best_epoch_ = numbers.at("best_epoch");
  best_ = numbers.at("best");
  radius_batches_ = numbers.at("radius_batches");
  skipped_ = numbers.at("skipped");
  epoch_loss_ = numbers.at("epoch_loss");
  epoch_right_ = numbers.at("epoch_right");
  epoch_images_ = numbers.at("epoch_images");
  clock_->loss = numbers.at("window_loss");
  clock_->right = numbers.at("window_right");
  clock_->images = numbers.at("window_images");
  seconds_before_ = numbers.at("seconds");
  saved_step_ = step_;
  say(fmt::format("going on at step {} of {}", step_, schedule_.steps()));
}

void Trainer::say(const std::string& text) const {
  if (callbacks_.say) callbacks_.say(text);
}

Json to_json(const TrainResult& result, const TrainOptions& options) {
  auto tests = Json::array();
  for (const auto& test : result.tests) {
    tests.push_back({{"name", test.name},
                     {"id", test.id},
                     {"top1", number(test.accuracy.top1())},
                     {"top5", number(test.accuracy.top5())},
                     {"loss", number(test.accuracy.loss)},
                     {"pictures", test.accuracy.pictures},
                     {"skipped_pictures", test.accuracy.skipped},
                     {"scored_classes", test.accuracy.scored_classes}});
  }
  return {{"method", options.method},
          {"seed", options.seed},
          {"steps", result.steps},
          {"skipped_steps", result.skipped_steps},
          {"best_epoch", result.best_epoch},
          {"selection", number(result.selection)},
          {"id_average", number(mean_of(result.tests, true))},
          {"ood_average", number(mean_of(result.tests, false))},
          {"tests", tests},
          {"seconds", result.seconds}};
}

}  // namespace tpgm

// Times a step by itself and in the trainer, in turns.
#include "benchmarks/train_loop.h"

#include <chrono>
#include <optional>

#include "benchmarks/our_step.h"
#include "benchmarks/scratch.h"
#include "benchmarks/timing.h"
#include "tpgm/methods/registry.h"
#include "tpgm/models/named_models.h"
#include "tpgm/study/run_folder.h"
#include "tpgm/train/trainer.h"

namespace tpgm::benchmarks {
namespace {

// Marks moments on the host, or in the stream of the device.
class Laps {
 public:
  explicit Laps(c10::Device device) {
    if (!device.is_cpu()) marks_.emplace(device);
  }
  void mark() { marks_ ? marks_->add() : times_.push_back(std::chrono::steady_clock::now()); }
  // The time between consecutive marks, in ms.
  std::vector<double> all() {
    if (marks_) return marks_->laps();
    std::vector<double> laps;
    for (size_t i = 1; i < times_.size(); ++i)
      laps.push_back(std::chrono::duration<double, std::milli>(times_[i] - times_[i - 1]).count());
    return laps;
  }

 private:
  std::optional<Marks> marks_;
  std::vector<std::chrono::steady_clock::time_point> times_;
};

Setup make_setup(const StepOptions& options, const StepSetting& setting) {
  Setup setup;
  setup.model = make_model(setting, options);
  place(*setup.model, setting, options);
  setup.device = options.device;
  setup.options.method = "ft";
  setup.options.epochs = 1;
  setup.options.lr = AdamW::kRate;
  setup.options.batch_size = options.batch_size;
  setup.options.amp = options.amp;
  setup.options.cuda_graph = options.cuda_graph;
  setup.method = make_method("ft", *setup.model, named_tensors(*setup.model));
  keys::kModel.set(setup.metadata, to_text(setting.config));
  return setup;
}

// Every other one, after the warm-up.
double median_of(const std::vector<double>& laps, size_t first, const StepSetting& setting) {
  std::vector<double> own;
  for (size_t i = first + 2 * static_cast<size_t>(setting.warmup); i < laps.size(); i += 2)
    own.push_back(laps[i]);
  return median(own);
}

}  // namespace

LoopTimes measure_loop(const StepOptions& options, const StepSetting& setting) {
  Setup setup = make_setup(options, setting);
  OurStep alone(options, setting, "ft", 0);
  Batch batch;
  batch.images = alone.batch().images;
  batch.labels = alone.batch().labels;
  batch.indices.resize(static_cast<size_t>(options.batch_size));

  Laps laps(options.device);
  const auto done = begin_progress(options.progress, setting.warmup + setting.repeats + 1);
  const BatchSource source{setting.warmup + setting.repeats + 1,
                           [](int64_t, int64_t) {},
                           [&]() -> std::optional<Batch> {
                             laps.mark();  // the trainer has done its step
                             alone.step();
                             laps.mark();
                             done();
                             return batch;
                           },
                           {}};
  const Scratch scratch(options.folder);
  auto folder = RunFolder::create(scratch.path() / "run", setup.options, {});
  TrainCallbacks callbacks;
  callbacks.progress = [](const TrainProgress&) {};
  Trainer(setup, &folder, callbacks, source).run();
  const auto all = laps.all();
  return {median_of(all, 0, setting), median_of(all, 1, setting)};
}

}  // namespace tpgm::benchmarks

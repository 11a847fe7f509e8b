// A bare step and the trainer's, in turns.
#include "benchmarks/train_loop.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "tpgm/methods/registry.h"
#include "tpgm/models/precision.h"
#include "tpgm/models/registry.h"
#include "tpgm/train/trainer.h"

namespace tpgm::benchmarks {
namespace {

namespace fs = std::filesystem;

/// Moments of the host, or of the device's stream.
class Laps {
 public:
  explicit Laps(c10::Device device) : device_(device) {}
  void mark() {
    if (device_.is_cpu()) {
      times_.push_back(std::chrono::steady_clock::now());
    } else {
      events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT)
          .record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    }
  }
  /// Between marks 2i + first and the one after it, but for the first `skip`.
  double median_ms(size_t first, size_t skip) {
    std::vector<double> laps;
    const size_t count = std::max(times_.size(), events_.size());
    if (!events_.empty()) events_.back().synchronize();
    for (size_t i = first + 2 * skip; i + 1 < count; i += 2) {
      laps.push_back(device_.is_cpu()
                         ? std::chrono::duration<double, std::milli>(times_[i + 1] - times_[i]).count()
                         : events_[i].elapsedTime(events_[i + 1]));
    }
    std::nth_element(laps.begin(), laps.begin() + static_cast<ptrdiff_t>(laps.size() / 2), laps.end());
    return laps[laps.size() / 2];
  }

 private:
  c10::Device device_;
  std::vector<std::chrono::steady_clock::time_point> times_;
  std::deque<c10::Event> events_;
};

struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() / fmt::format("tpgm-bench-loop-{}", ::getpid());
  ~TemporaryFolder() {
    std::error_code ignored;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, ignored)) files.push_back(entry.path());
    for (const auto& file : files) fs::remove(file, ignored);
    fs::remove(path, ignored);
  }
};

std::shared_ptr<Classifier> make_model(const StepOptions& options, bool channels_last) {
  at::manual_seed(1);
  auto backbone = make_backbone(options.model);
  backbone->reset_parameters();
  auto model =
      std::make_shared<Classifier>(std::move(backbone), ClassifierOptions().num_classes(options.classes));
  model->to(options.device);
  if (channels_last) to_channels_last(*model);
  return model;
}

// Bare step and trainer's step in turns, from the trainer's source of batches.
std::pair<double, double> measure(const StepOptions& options, bool graph, int64_t warmup, int64_t repeats) {
  const bool channels_last = options.channels_last.value_or(is_resnet(options.model.family));
  Setup setup;
  setup.model = make_model(options, channels_last);
  setup.device = options.device;
  setup.options.method = "ft";
  setup.options.epochs = 1;
  setup.options.lr = 1e-4;
  setup.options.batch_size = options.batch_size;
  setup.options.amp = options.amp;
  setup.options.cuda_graph = graph;
  setup.method = make_method("ft", *setup.model, named_tensors(*setup.model));
  setup.metadata["tpgm.model"] = to_text(options.model);

  const auto bare_model = make_model(options, channels_last);
  Optimizer optimizer({{bare_model->named_parameters(), 1, 0}}, OptimOptions());
  bare_model->train();

  const auto& backbone = *setup.model->backbone;
  Batch batch;
  batch.images =
      at::randn({options.batch_size, backbone.channels(), backbone.image_size(), backbone.image_size()},
                at::TensorOptions(options.device));
  if (channels_last) batch.images = batch.images.contiguous(at::MemoryFormat::ChannelsLast);
  batch.labels =
      at::randint(options.classes, {options.batch_size}, at::TensorOptions(options.device).dtype(at::kLong));
  batch.indices.resize(static_cast<size_t>(options.batch_size));

  const auto bare_step = [&] {
    at::Tensor logits;
    {
      std::optional<Autocast> autocast;
      if (options.amp) autocast.emplace(options.device.type());
      logits = bare_model->forward(batch.images);
    }
    classification_loss(logits, batch.labels).backward();
    optimizer.step(1e-4);
    optimizer.zero_grad();
  };
  Laps laps(options.device);
  const BatchSource source{warmup + repeats + 1,
                           [](int64_t, int64_t) {},
                           [&]() -> std::optional<Batch> {
                             laps.mark();  // the trainer has done its step
                             bare_step();
                             laps.mark();
                             return batch;
                           },
                           {}};
  TemporaryFolder temporary;
  auto folder = RunFolder::create(temporary.path, setup.options, {});
  TrainCallbacks callbacks;
  callbacks.progress = [](const TrainProgress&) {};
  Trainer(setup, &folder, callbacks, source).run();
  const auto skip = static_cast<size_t>(warmup);
  return {laps.median_ms(0, skip), laps.median_ms(1, skip)};
}

}  // namespace

LoopTimes measure_loop(const StepOptions& options) {
  StepOptions all = options;
  set_defaults(all.model);
  const bool cuda = options.device.is_cuda();
  const int64_t warmup = options.warmup.value_or(cuda ? 10 : 2),
                repeats = options.repeats.value_or(cuda ? 20 : 5);
  LoopTimes times;
  std::tie(times.bare_ms, times.trainer_ms) = measure(all, /*graph=*/false, warmup, repeats);
  if (cuda) times.trainer_graph_ms = measure(all, /*graph=*/true, warmup, repeats).second;
  return times;
}

}  // namespace tpgm::benchmarks

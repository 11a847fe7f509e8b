// Runs our steps and the rival's in turns.
#include "benchmarks/step.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "benchmarks/our_step.h"
#include "benchmarks/rival.h"
#include "tpgm/base/error_text.h"
#include "tpgm/methods/registry.h"
#include "tpgm/nn/precision.h"

namespace tpgm::benchmarks {
namespace {

using Work = std::function<void()>;

// A function that is timed, its memory, and what to call after each run.
struct Runner {
  Work work;
  std::shared_ptr<MemoryMeter> meter;
  Work done;
  std::vector<double> laps;

  void call() {
    meter->call(work);
    done();
  }
};

// Progress of so many rows of steps.
Work progress_of(const StepOptions& options, const StepSetting& setting, size_t rows) {
  return begin_progress(options.progress, static_cast<int64_t>(rows) * (setting.warmup + setting.repeats));
}

// A GPU that was idle, or did lighter work, clocks higher than a busy one. It is idle while a row is set up,
// and the shorter the steps of a row are, the more they would gain from that.
void settle(Runner& runner, double seconds, c10::Device device) {
  for (double ms = 0; ms < 1e3 * seconds;) {
    Marks marks(device);
    marks.add();
    runner.meter->call(runner.work);
    marks.add();
    ms += marks.laps().front();
  }
}

void warm_up(Runner& runner, const StepSetting& setting, c10::Device device) {
  for (int64_t i = 0; i < setting.warmup; ++i) {
    runner.call();
    // The first steps search for kernels, with workspaces that no later one needs. Those after them count:
    // the memory of a graph is taken when it is captured.
    if (i < 2) runner.meter->reset();
  }
  settle(runner, setting.warmup_s, device);
}

// On CUDA, where steps queue up, after the warm-up of all runners (that of the first one last): two turns of
// many steps, the second in reverse order. At each change the clock of the GPU settles to the work of the
// runner.
void time_queued(std::vector<Runner*> runners, const StepSetting& setting, c10::Device device) {
  const int64_t turns = runners.size() > 1 ? std::min<int64_t>(2, setting.repeats) : 1;
  const Runner* at_work = runners.front();
  for (int64_t turn = 0; turn < turns; ++turn, std::ranges::reverse(runners)) {
    for (auto* runner : runners) {
      if (std::exchange(at_work, runner) != runner) settle(*runner, setting.warmup_s, device);
      runner->meter->call(runner->work);  // the first that counts is launched while this one runs
      Marks marks(device);
      marks.add();
      for (int64_t i = turn; i < setting.repeats; i += turns) {
        runner->call();
        marks.add();
      }
      for (const double lap : marks.laps()) runner->laps.push_back(lap);
    }
  }
}

// On the CPU, after the warm-up of all runners.
void time_in_turns(const std::vector<Runner*>& runners, const StepSetting& setting, Rival* rival) {
  for (int64_t i = 0; i < setting.repeats; ++i) {
    for (auto* runner : runners) runner->laps.push_back(host_ms([&] { runner->call(); }));
    if (rival) rival->take_turn();
  }
}

void time_one(Runner& runner, const StepSetting& setting, c10::Device device, Rival* rival) {
  warm_up(runner, setting, device);
  if (!device.is_cpu()) return time_queued({&runner}, setting, device);
  if (rival) rival->wait_ready();
  time_in_turns({&runner}, setting, rival);
}

int64_t usual_repeats(const StepOptions& options) { return options.device.is_cuda() ? 20 : 5; }

StepTimes measure_ours(const StepOptions& options, const StepSetting& setting, Rival* rival) {
  StepTimes times;
  times.name = "tpgm";
  times.torch = TORCH_VERSION;
  std::shared_ptr<Classifier> model;
  StepBatch batch;
  const Work done = progress_of(options, setting, 2);
  {
    OurStep ours(options, setting, "ft", 0);
    Runner runner{[&] { ours.step(); }, std::make_shared<MemoryMeter>(options.device), done, {}};
    time_one(runner, setting, options.device, rival);
    times.training_ms = median(runner.laps);
    times.training_peak = runner.meter->peak();
    times.losses = ours.losses();
    times.captured = ours.captured();
    model = ours.model();
    batch = ours.batch();
  }
  free_cache(options.device);

  for (auto& parameter : model->parameters()) parameter.mutable_grad().reset();
  model->eval();
  const at::NoGradGuard no_grad;
  at::Tensor logits;
  Runner runner{[&] {
                  std::optional<Autocast> autocast;
                  if (options.amp) autocast.emplace(options.device.type());
                  logits = model->forward(batch.images);
                },
                std::make_shared<MemoryMeter>(options.device),
                done,
                {}};
  time_one(runner, setting, options.device, rival);
  times.inference_ms = median(runner.laps);
  times.inference_peak = runner.meter->peak();
  times.inference_loss = classification_loss(logits, batch.labels).item<double>();
  return times;
}

// Calls `work`; a failure becomes the error of the row, in one line.
bool attempt(StepTimes& times, const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    times.error = short_message(error);
    if (times.error.starts_with('[')) times.error.erase(0, times.error.find("] ") + 2);  // whose it is
  }
  return times.error.empty();
}

// A row of ours that is being measured.
struct Runnable {
  MethodRow* row;
  Runner runner;
  std::unique_ptr<OurStep> ours;
  std::optional<PeakMemory> peak;

  Runnable(MethodRow& of, const StepOptions& options, const StepSetting& setting, const Work& done)
      : row(&of), runner{[this] { ours->step(); }, std::make_shared<MemoryMeter>(options.device), done, {}} {
    runner.meter->call(
        [&] { ours = std::make_unique<OurStep>(options, setting, row->method, row->radius_batch); });
  }
  Runnable(const Runnable&) = delete;
  Runnable& operator=(const Runnable&) = delete;

  // Ends the measurement of its memory: on CUDA, other rows use the device from now on.
  void close_meter() { peak = runner.meter->peak(); }

  void report() {
    row->times.training_ms = median(runner.laps);
    row->times.training_peak = peak.value_or(runner.meter->peak());
    row->times.losses = ours->losses();
    row->times.captured = ours->captured();
    row->times.radius_data_mib = ours->radius_data_mib();
  }
};

// Steps of plain fine-tuning between those of the row, because the clock of a busy GPU drifts by more than
// methods differ. Empty if the device has no memory for both.
std::optional<double> time_beside_plain(Runnable& each, const StepOptions& options,
                                        const StepSetting& setting) {
  MethodRow plain;
  plain.method = "ft";
  try {
    Runnable beside(plain, options, setting, each.runner.done);
    warm_up(beside.runner, setting, options.device);
    time_queued({&beside.runner, &each.runner}, setting, options.device);
    return median(beside.runner.laps);
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;
  }
}

void measure_on_cuda(std::vector<MethodRow>& rows, const StepOptions& options, const StepSetting& setting) {
  const Work done = progress_of(options, setting, 2 * rows.size() - 1);
  for (auto& row : rows) {
    attempt(row.times, [&] {
      Runnable each(row, options, setting, done);
      warm_up(each.runner, setting, options.device);
      if (row.method != "ft") {
        each.close_meter();
        row.times.plain_ms = time_beside_plain(each, options, setting);
      }
      if (!row.times.plain_ms) {
        free_cache(options.device);
        each.runner.laps.clear();
        if (row.method != "ft") settle(each.runner, setting.warmup_s, options.device);
        time_queued({&each.runner}, setting, options.device);
      }
      each.report();
    });
    free_cache(options.device);
  }
}

void measure_in_turns(std::vector<MethodRow>& rows, const StepOptions& options, const StepSetting& setting,
                      Rival* rival) {
  const Work done = progress_of(options, setting, rows.size());
  std::vector<std::unique_ptr<Runnable>> all;
  double most = 0;  // bytes of the largest row so far; the next one needs as much, and what it keeps
  for (auto& row : rows) {
    attempt(row.times, [&] {
      TORCH_CHECK(available_memory() > most + 12.0 * static_cast<double>(setting.parameters),
                  "does not fit into memory beside the rows above; choose fewer with --methods");
      auto each = std::make_unique<Runnable>(row, options, setting, done);
      warm_up(each->runner, setting, options.device);
      most = std::max(most, each->runner.meter->peak().allocated_mib * (1 << 20));
      all.push_back(std::move(each));
    });
  }
  std::vector<Runner*> runners;
  for (const auto& each : all) runners.push_back(&each->runner);
  time_in_turns(runners, setting, rival);
  for (const auto& each : all) each->report();
}

std::vector<MethodRow> rows_of(const std::vector<std::string>& methods, int64_t batch_size) {
  std::vector<MethodRow> rows;
  const auto add = [&](const std::string& method, const std::string& name, int64_t radius_batch) {
    const auto has_name = [&](const MethodRow& each) { return each.times.name == name; };
    if (std::any_of(rows.begin(), rows.end(), has_name)) return;
    auto& row = rows.emplace_back();
    row.method = method;
    row.radius_batch = radius_batch;
    row.times.name = name;
    row.times.torch = TORCH_VERSION;
  };
  add("ft", "plain", 0);
  for (const auto& method : methods) {
    if (const auto* info = find_method(method); info != nullptr && info->radius_updates) {
      const int64_t quarter = std::max<int64_t>(1, batch_size / 4);
      for (const int64_t radius : {quarter, batch_size})
        add(method, fmt::format("{}, radius batch {}", method, radius), radius);
    } else if (method != "ft") {
      add(method, method, 0);
    }
  }
  return rows;
}

}  // namespace

StepReport measure_step(const StepOptions& options) {
  StepReport report;
  report.setting = make_setting(options, usual_repeats(options));
  const bool cpu = options.device.is_cpu();
  std::optional<Rival> rival;
  if (!options.python.empty()) {
    rival.emplace(options, report.setting, *make_model(report.setting, options),
                  make_batch(report.setting, options, options.batch_size), /*inference=*/true);
    if (!cpu) report.rivals = rival->finish();
  }
  report.ours = measure_ours(options, report.setting, rival && cpu ? &*rival : nullptr);
  if (rival && cpu) report.rivals = rival->finish();
  for (const auto& each : report.rivals) {
    TORCH_CHECK(each.error.empty(), "[bench step] --python '", options.python, "': ", each.name, ": ",
                each.error);
  }
  return report;
}

MethodsReport measure_methods(const StepOptions& options, const std::vector<std::string>& methods) {
  MethodsReport report;
  report.setting = make_setting(options, 20);
  report.ours = rows_of(methods, options.batch_size);
  StepTimes failed;
  failed.name = "Python";
  std::optional<Rival> rival;
  const bool cpu = options.device.is_cpu();
  if (!options.python.empty()) {
    attempt(failed, [&] {
      rival.emplace(options, report.setting, *make_model(report.setting, options),
                    make_batch(report.setting, options, options.batch_size), /*inference=*/false);
      cpu ? rival->wait_ready() : void(report.rivals = rival->finish());
    });
  }
  const bool turns = rival && cpu && failed.error.empty();
  if (cpu) {
    measure_in_turns(report.ours, options, report.setting, turns ? &*rival : nullptr);
  } else {
    measure_on_cuda(report.ours, options, report.setting);
  }
  if (turns) attempt(failed, [&] { report.rivals = rival->finish(); });
  if (!failed.error.empty()) report.rivals = {failed};
  return report;
}

StepSetting profile_step(const StepOptions& options, const std::string& method) {
  const StepSetting setting = make_setting(options, 1);
  const auto rows = rows_of({method}, options.batch_size);
  OurStep ours(options, setting, method, rows.at(method == "ft" ? 0 : 1).radius_batch);
  for (int64_t i = 0; i < setting.warmup; ++i) ours.step();
  const ProfilerRange range(options.device);
  ours.step();
  return setting;
}

}  // namespace tpgm::benchmarks

#include "benchmarks/step_table.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tpgm/base/numbers.h"
#include "tpgm/models/named_models.h"

namespace tpgm::benchmarks {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const StepOptions& options, const StepSetting& setting) {
  return {{"model", to_text(setting.config)},
          {"parameters", setting.parameters},
          {"device", options.device.str()},
          {"threads", at::get_num_threads()},
          {"batch_size", options.batch_size},
          {"channels", setting.channels},
          {"image_size", setting.image_size},
          {"classes", options.classes},
          {"amp", options.amp},
          {"channels_last", setting.channels_last},
          {"warmup", setting.warmup},
          {"warmup_s", setting.warmup_s},
          {"repeats", setting.repeats}};
}

std::string setting_text(const StepRun& run, const StepSetting& setting) {
  const auto& options = run.options;
  return fmt::format(
      "{}, {} parameters, {} images of {}×{}×{}, {}{}, {}{}\n\n", run.model, grouped(setting.parameters),
      run.options.batch_size, setting.channels, setting.image_size, setting.image_size, run.device,
      run.options.device.is_cpu() ? fmt::format(", {} threads", at::get_num_threads()) : "",
      options.amp ? "bf16 autocast" : "float32", setting.channels_last ? ", channels last" : "");
}

std::string waited(const StepSetting& setting) {
  return setting.warmup_s > 0 ? fmt::format(" and {} s", setting.warmup_s) : "";
}

constexpr const char* kNoPython =
    "--python PYTHON measures the same model of torchvision, timm or open_clip beside it.";

// --- one model beside the library's ---

double relative_difference(double ours, double theirs) { return std::abs(ours - theirs) / std::abs(theirs); }

// The losses that are shown: of the untrained model, after a few updates, after as many as all have made.
// Where a warm-up lasts for a time, the faster ones make more.
std::vector<size_t> shown_steps(const std::vector<const StepTimes*>& all) {
  size_t most = all.front()->losses.size();
  for (const auto* each : all) most = std::min(most, each->losses.size());
  std::vector<size_t> steps;
  for (const size_t step : {size_t{1}, size_t{3}, most}) {
    if (step <= most && (steps.empty() || step > steps.back())) steps.push_back(step);
  }
  return steps;
}

// Weights of as many updates, so that their loss in evaluation can be compared.
bool as_trained(const StepTimes& a, const StepTimes& b) { return a.losses.size() == b.losses.size(); }

Json as_json(const StepRun& run, const StepTimes& times) {
  const auto images_s = [&](double ms) { return 1e3 * static_cast<double>(run.options.batch_size) / ms; };
  Json json{{"name", times.name},
            {"torch", times.torch},
            {"training_ms", times.training_ms},
            {"training_images_s", images_s(times.training_ms)},
            {"inference_ms", times.inference_ms},
            {"inference_images_s", images_s(times.inference_ms)},
            {"losses", times.losses},
            {"inference_loss", times.inference_loss}};
  if (run.options.device.is_cuda()) {
    json.update({{"training_peak_mib", times.training_peak.allocated_mib},
                 {"training_reserved_mib", times.training_peak.reserved_mib},
                 {"inference_peak_mib", times.inference_peak.allocated_mib}});
  }
  return json;
}

Json as_json(const StepRun& run, const StepReport& report) {
  const auto& ours = report.ours;
  auto rivals = Json::array();
  for (const auto& rival : report.rivals) {
    auto json = as_json(run, rival);
    auto differences = Json::array();
    for (size_t i = 0; i < std::min(ours.losses.size(), rival.losses.size()); ++i) {
      differences.push_back(relative_difference(ours.losses[i], rival.losses[i]));
    }
    json.update({{"training_times", rival.training_ms / ours.training_ms},
                 {"inference_times", rival.inference_ms / ours.inference_ms},
                 {"loss_differences", differences}});
    if (as_trained(ours, rival))
      json["inference_loss_difference"] = relative_difference(ours.inference_loss, rival.inference_loss);
    rivals.push_back(json);
  }
  auto own = as_json(run, ours);
  own["cuda_graph"] = ours.captured;
  return {{"ours", own}, {"rivals", rivals}};
}

// --- every method beside plain fine-tuning and the library's model ---

// The row that the others are compared with: of the rivals, the last that ran, compile before eager.
struct Bases {
  const StepTimes* rival = nullptr;
  const StepTimes* plain = nullptr;
  double weights_mib = 0;  // in float32
  size_t steps = 0;        // after which losses are shown

  explicit Bases(const MethodsReport& report)
      : weights_mib(4.0 * static_cast<double>(report.setting.parameters) / (1 << 20)),
        steps(std::min<size_t>(20, static_cast<size_t>(report.setting.warmup + report.setting.repeats - 1))) {
    for (const auto& each : report.rivals) {
      if (each.error.empty()) rival = &each;
    }
    if (report.ours.front().times.error.empty()) plain = &report.ours.front().times;
  }
  std::optional<double> of_rival(const StepTimes& times) const {
    return rival ? std::optional(times.training_ms / rival->training_ms) : std::nullopt;
  }
  std::optional<double> of_plain(const StepTimes& times) const {
    if (times.plain_ms) return times.training_ms / *times.plain_ms;
    return plain ? std::optional(times.training_ms / plain->training_ms) : std::nullopt;
  }
  // Memory that plain fine-tuning does not take, without the radius data, in copies of the weights.
  std::optional<double> beyond(const StepTimes& times) const {
    if (!plain || times.training_peak.allocated_mib == 0) return std::nullopt;
    return (times.training_peak.allocated_mib - times.radius_data_mib - plain->training_peak.allocated_mib) /
           weights_mib;
  }
  // Of the step that comes after so many.
  double loss(const StepTimes& times) const { return times.losses.at(steps); }
};

Json as_json(const StepTimes& times, const Bases& bases, bool ours) {
  Json json{{"name", times.name}, {"torch", times.torch}};
  if (!times.error.empty()) {
    json["error"] = times.error;
    return json;
  }
  json["ms"] = times.training_ms;
  if (const auto ratio = bases.of_rival(times)) json["of_rival"] = *ratio;
  if (const auto ratio = bases.of_plain(times)) json["of_plain"] = *ratio;
  if (times.plain_ms) json["plain_ms"] = *times.plain_ms;
  if (times.training_peak.allocated_mib > 0) json["peak_mib"] = times.training_peak.allocated_mib;
  if (times.training_peak.reserved_mib > 0) json["reserved_mib"] = times.training_peak.reserved_mib;
  if (const auto beyond = bases.beyond(times); beyond && ours) json["copies_beyond_plain"] = *beyond;
  if (times.radius_data_mib > 0) json["radius_data_mib"] = times.radius_data_mib;
  if (ours) json["cuda_graph"] = times.captured;
  json["loss"] = bases.loss(times);
  json["losses"] = times.losses;
  return json;
}

Json as_json(const MethodsReport& report) {
  const Bases bases(report);
  auto rivals = Json::array(), ours = Json::array();
  for (const auto& each : report.rivals) rivals.push_back(as_json(each, bases, false));
  for (const auto& each : report.ours) {
    auto json = as_json(each.times, bases, true);
    json["method"] = each.method;
    if (each.radius_batch > 0) json["radius_batch"] = each.radius_batch;
    ours.push_back(json);
  }
  Json json{{"weights_mib", bases.weights_mib}, {"loss_after", bases.steps}};
  if (bases.rival) json["rival"] = bases.rival->name;
  json.update({{"rivals", rivals}, {"ours", ours}});
  return json;
}

}  // namespace

std::string to_text(const StepRun& run, const StepReport& report, const LoopTimes& loop) {
  std::string text = setting_text(run, report.setting);
  const auto out = std::back_inserter(text);
  const auto& ours = report.ours;
  const bool peaks = run.options.device.is_cuda();
  fmt::format_to(out, "{:<44}{:>10}{:>11}{:>11}{:>12}\n", "", "ms", "images/s", peaks ? "peak MiB" : "",
                 report.rivals.empty() ? "" : "× faster");
  const auto row = [&](const StepTimes& times, const char* what, double ms, double peak, double our_ms) {
    fmt::format_to(out, "{:<44}{:>10.2f}{:>11.1f}{:>11}", fmt::format("{}, {}", what, times.name), ms,
                   1e3 * static_cast<double>(run.options.batch_size) / ms,
                   peaks ? fmt::format("{:.0f}", peak) : "");
    fmt::format_to(out, "{}\n", &times == &ours ? "" : fmt::format("{:>11.2f}×", ms / our_ms));
  };
  std::vector<const StepTimes*> all{&ours};
  for (const auto& rival : report.rivals) all.push_back(&rival);
  for (const auto* each : all)
    row(*each, "training step", each->training_ms, each->training_peak.allocated_mib, ours.training_ms);
  for (const auto* each : all)
    row(*each, "inference", each->inference_ms, each->inference_peak.allocated_mib, ours.inference_ms);

  fmt::format_to(out, "\n{:<44}", "loss");
  const auto steps = shown_steps(all);
  for (const size_t step : steps) fmt::format_to(out, "{:>11}", fmt::format("step {}", step));
  fmt::format_to(out, "{:>12}\n", "evaluation");
  for (const auto* each : all) {
    fmt::format_to(out, "{:<44}", each->name);
    for (const size_t step : steps) fmt::format_to(out, "{:>11.5f}", each->losses.at(step - 1));
    fmt::format_to(out, "{:>12.5f}\n", each->inference_loss);
    if (each == &ours) continue;
    fmt::format_to(out, "{:<44}", "  tpgm differs by");
    for (const size_t step : steps) {
      fmt::format_to(out, "{:>11.1e}", relative_difference(ours.losses[step - 1], each->losses.at(step - 1)));
    }
    fmt::format_to(out, "{:>12}\n",
                   as_trained(ours, *each)
                       ? fmt::format("{:.1e}", relative_difference(ours.inference_loss, each->inference_loss))
                       : "");
  }
  fmt::format_to(out, "\n{:<44}{:>10}\n", "the loop around it", "ms");
  fmt::format_to(out, "{:<44}{:>10.2f}\n", "training step, by itself", loop.step_ms);
  fmt::format_to(out, "{:<44}{:>10.2f}   {:+.1f} %\n", "through tpgm train, without data, in turns",
                 loop.trainer_ms, 100 * (loop.trainer_ms / loop.step_ms - 1));

  fmt::format_to(
      out,
      "\nMedians of {} after {}{} that do not count, LibTorch {}. A step is forward, backward and AdamW, as\n"
      "'tpgm train' makes it{}; evaluation comes after all of them.\n",
      report.setting.repeats, report.setting.warmup, waited(report.setting), ours.torch,
      ours.captured ? ": replayed from a CUDA graph" : "");
  if (report.rivals.empty()) {
    fmt::format_to(out, "{}\n", kNoPython);
  } else {
    fmt::format_to(out,
                   "× faster: tpgm than Python with torch {}, from the same weights on the same images{}.\n",
                   report.rivals.front().torch, run.options.device.is_cpu() ? ", taking turns" : "");
  }
  return text;
}

Json to_json(const StepRun& run, const StepReport& report, const LoopTimes& loop) {
  auto json = as_json(run.options, report.setting);
  json.update(as_json(run, report));
  json["loop"] = {{"step_ms", loop.step_ms}, {"trainer_ms", loop.trainer_ms}};
  return json;
}

Json to_json(const StepRun& run, const MethodsReport& report) {
  auto json = as_json(run.options, report.setting);
  json.update(as_json(report));
  return json;
}

std::string to_text(const StepRun& run, const MethodsReport& report) {
  std::string text = setting_text(run, report.setting);
  const auto out = std::back_inserter(text);
  const Bases bases(report);
  const std::string base = !bases.rival                             ? ""
                           : bases.rival->name.ends_with("compile") ? "× compile"
                                                                    : "× eager";
  const bool beside = std::any_of(report.ours.begin(), report.ours.end(),
                                  [](const MethodRow& each) { return each.times.plain_ms.has_value(); });
  const int wide = bases.rival ? 11 : 0, wide_beside = beside ? 12 : 0;
  fmt::format_to(out, "{:<34}{:>10}{:>{}}{:>{}}{:>9}{:>10}{:>14}{:>15}\n", "training step", "ms", base, wide,
                 beside ? "plain's ms" : "", wide_beside, "× plain", "peak MiB", "beyond plain",
                 fmt::format("loss after {}", bases.steps));
  const auto number = [](std::optional<double> value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : "";
  };
  const auto row = [&](const std::string& name, const StepTimes& times, bool ours) {
    if (!times.error.empty()) {
      fmt::format_to(out, "{:<34}  {}\n", name, times.error);
      return;
    }
    const double peak = times.training_peak.allocated_mib;
    fmt::format_to(out, "{:<34}{:>10.2f}{:>{}}{:>{}}{:>9}{:>10}{:>14}{:>15.5f}\n", name, times.training_ms,
                   number(bases.of_rival(times), 2), wide, number(times.plain_ms, 2), wide_beside,
                   number(bases.of_plain(times), 3), number(peak > 0 ? std::optional(peak) : std::nullopt, 0),
                   ours ? number(bases.beyond(times), 2) : "", bases.loss(times));
  };
  for (const auto& each : report.rivals) row(each.name, each, false);
  for (const auto& each : report.ours) row("tpgm: " + each.times.name, each.times, true);

  const bool cpu = run.options.device.is_cpu();
  fmt::format_to(
      out,
      "\nMedians of {} after {}{} that do not count, all from the same weights on the same images{}; "
      "LibTorch "
      "{}{}.\n"
      "×: the row's time over Python's or plain fine-tuning's{}. Beyond plain: memory without the radius "
      "batch, in "
      "copies\n"
      "of the weights in float32 ({:.0f} MiB){}.\n"
      "Losses: plain's should be the library's. A method that holds weights near the pre-trained ones has "
      "one "
      "of its own.\n",
      report.setting.repeats, report.setting.warmup, waited(report.setting), cpu ? ", taking turns" : "",
      report.ours.front().times.torch,
      report.rivals.empty() || report.rivals.front().torch.empty()
          ? ""
          : fmt::format(", Python's torch {}", report.rivals.front().torch),
      beside ? ", which is taken in turns with each method: plain's ms" : "", bases.weights_mib,
      cpu ? "; of ours, Python's is not known" : "");
  if (!cpu) {
    std::vector<std::string> launched, alone;
    for (const auto& each : report.ours) {
      if (!each.times.error.empty()) continue;
      if (!each.times.captured) launched.push_back(each.times.name);
      if (each.method != "ft" && !each.times.plain_ms) alone.push_back(each.times.name);
    }
    if (!alone.empty() && bases.plain) {
      fmt::format_to(out, "Over the row 'plain', as the device has no memory for two: {}.\n",
                     fmt::join(alone, "; "));
    }
    if (launched.empty()) {
      fmt::format_to(out, "Ours are replayed from CUDA graphs, as 'tpgm train' does.\n");
    } else {
      fmt::format_to(out, "Not from a CUDA graph: {}.\n", fmt::join(launched, "; "));
    }
  }
  if (run.options.python.empty()) fmt::format_to(out, "{}\n", kNoPython);
  return text;
}

}  // namespace tpgm::benchmarks

#include "benchmarks/rival.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <type_traits>
#include <utility>

#include "benchmarks/python.h"
#include "tpgm/base/text.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/families.h"
#include "tpgm/weights/names.h"

namespace tpgm::benchmarks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

StepTimes times_from(const Json& json) {
  StepTimes times;
  times.name = json.at("name");
  times.torch = json.at("torch");
  times.error = json.value("error", "");
  if (!times.error.empty()) return times;
  times.losses = json.at("losses").get<std::vector<double>>();
  const auto read = [](const Json& phase, double& ms, PeakMemory& peak) {
    ms = phase.at("ms");
    peak = {phase.at("peak_mib"), phase.at("reserved_mib")};
  };
  read(json.at("training"), times.training_ms, times.training_peak);
  if (json.contains("inference")) {
    read(json.at("inference"), times.inference_ms, times.inference_peak);
    times.inference_loss = json.at("inference_loss");
  }
  return times;
}

Layout layout_of(const Family& family) {
  const auto& library = *family.library;
  TORCH_CHECK(library, "[bench step] no Python library is known to have a ", family.name,
              "; measure it without --python");
  return parse_layout(library->layout);
}

// Weights as the library calls them, below "weights/", with a head where it has none: "head/".
NamedTensors rival_tensors(const Classifier& model, const ModelConfig& config) {
  NamedTensors ours{"Tensor"}, all{"Tensor"};
  const std::string backbone = "backbone.", head = "head.", tower = config.family->image_prefix();
  for (const auto& item : state_dict(model)) {
    if (item.key().starts_with(backbone)) {
      ours.insert(tower + item.key().substr(backbone.size()), item.value());
    } else if (config.family->has_text()) {
      all.insert("head/" + item.key().substr(head.size()), item.value());
    } else {
      ours.insert(item.key(), item.value());
    }
  }
  const Renamed theirs = from_ours(ours, config, layout_of(*config.family));
  TORCH_CHECK(theirs.unknown.empty(), "[bench step] the baseline's library has no name for '",
              theirs.unknown.front(), "'");
  for (const auto& item : theirs.tensors) all.insert("weights/" + item.key(), item.value());
  return all;
}

Json sizes_json(ModelConfig config) {
  Json json{{"family", config.family->name}};
  visit_sizes(
      *config.family,
      [&](const char* name, const char*, const auto& value) {
        if (!value) return;
        if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(*value)>>) {
          json[name] = to_text(*value);
        } else {
          json[name] = *value;
        }
      },
      config);
  return json;
}

}  // namespace

Rival::Rival(const StepOptions& options, const StepSetting& setting, const Classifier& model,
             const StepBatch& batch, bool inference)
    : folder_(options.folder), python_(options.python), script_(options.rival.string()) {
  const fs::path input = folder_.path() / "step.safetensors", go = folder_.path() / "go",
                 done = folder_.path() / "done";
  for (const auto& path : {go, done}) {
    TORCH_CHECK(::mkfifo(path.c_str(), 0600) == 0, "[bench step] cannot make '", path.string(), "'");
  }
  NamedTensors tensors = rival_tensors(model, setting.config);
  tensors.insert("images", batch.images);
  tensors.insert("labels", batch.labels);
  const Json settings{{"model", sizes_json(setting.config)},
                      {"device", options.device.str()},
                      {"amp", options.amp},
                      {"channels_last", setting.channels_last},
                      {"classes", options.classes},
                      {"threads", at::get_num_threads()},
                      {"warmup", setting.warmup},
                      {"warmup_s", setting.warmup_s},
                      {"repeats", setting.repeats},
                      {"turns", options.device.is_cpu()},
                      {"compile", options.compile},
                      {"inference", inference},
                      {"adamw",
                       {{"lr", AdamW::kRate},
                        {"betas", {AdamW::kBeta1, AdamW::kBeta2}},
                        {"weight_decay", AdamW::kDecay},
                        {"eps", AdamW::kEps}}}};
  save_safetensors(tensors, input, {{"settings", settings.dump()}});
  // Open in both directions, or opening would wait for the other side.
  go_ = ::open(go.c_str(), O_RDWR | O_CLOEXEC);
  done_ = ::open(done.c_str(), O_RDWR | O_CLOEXEC);
  options.say(fmt::format("Python loads its library{}{}", options.compile ? ", compiles the model" : "",
                          options.device.is_cpu() ? "" : " and is measured"));
  process_.emplace(std::vector<std::string>{python_, script_, input.string()});
  TORCH_CHECK(go_ >= 0 && done_ >= 0, "[bench step] cannot open '", go.string(), "'");
}

Rival::~Rival() {
  ::close(go_);  // or it would wait for its turn forever
  ::close(done_);
}

void Rival::wait_ready() {
  pollfd waiting[2]{{done_, POLLIN, 0}, {::fileno(process_->output()), POLLIN, 0}};
  char mark = 0;
  if (::poll(waiting, 2, -1) > 0 && (waiting[0].revents & POLLIN) != 0 && ::read(done_, &mark, 1) == 1)
    return;
  finish();  // throws with the reason why it stopped
  TORCH_CHECK(false, "[bench step] the baseline ended early");
}

void Rival::take_turn() {
  TORCH_CHECK(::write(go_, ".", 1) == 1, "[bench step] the baseline does not listen");
  wait_ready();
}

std::vector<StepTimes> Rival::finish() {
  const std::string said = process_->read_all();
  const int status = process_->wait();
  const Json json = Json::parse(said, nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK(!json.is_object() || !json.contains("error"), "[bench step] --python '", python_,
              "': ", json.value("error", ""));
  TORCH_CHECK(status == 0 && json.is_object(), "[bench step] --python: '", python_, "' could not run ",
              script_, " (", status_text(status), ")");
  std::vector<StepTimes> times;
  for (const auto& each : json.at("runs")) times.push_back(times_from(each));
  return times;
}

}  // namespace tpgm::benchmarks

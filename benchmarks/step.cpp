// A step of ours and of the rival, in turns.
#include "benchmarks/step.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/cuda.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tpgm/io/safetensors.h"
#include "tpgm/models/classifier.h"
#include "tpgm/models/names.h"
#include "tpgm/models/precision.h"
#include "tpgm/models/registry.h"

namespace tpgm::benchmarks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// torch.optim.AdamW's defaults, but for the rate: with 1e-3 random labels are learned so wildly that rounding
// errors show in the losses after a few steps.
constexpr double kRate = 1e-4, kBeta1 = 0.9, kBeta2 = 0.999, kDecay = 0.01, kEps = 1e-8;

/// What torch.optim.AdamW(fused=True) does, call for call.
class FusedAdamW {
 public:
  explicit FusedAdamW(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const auto& parameter : parameters_) {
      averages_.push_back(at::zeros_like(parameter));
      squares_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}, parameter.options()));
    }
  }

  void step() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> grads;
    for (const auto& parameter : parameters_) grads.push_back(parameter.grad());
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, grads, averages_, squares_, {}, steps_, kRate, kBeta1, kBeta2, kDecay,
                      kEps, /*amsgrad=*/false, /*maximize=*/false);
  }

  void zero_grad() {  // to none, as in Python
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
  }

 private:
  std::vector<at::Tensor> parameters_, averages_, squares_, steps_;
};

double median(std::vector<double> laps) {
  std::nth_element(laps.begin(), laps.begin() + static_cast<ptrdiff_t>(laps.size() / 2), laps.end());
  return laps[laps.size() / 2];
}

/// Marks moments of a device's work; nobody waits for it until the end, as nobody does in training.
class Marks {
 public:
  explicit Marks(c10::Device device) : device_(device) {}

  void add() {
    events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT)
        .record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

  /// Between each two neighbours.
  double median_ms() {
    std::vector<double> laps;
    events_.back().synchronize();
    for (std::size_t i = 1; i < events_.size(); ++i) laps.push_back(events_[i - 1].elapsedTime(events_[i]));
    return median(std::move(laps));
  }

 private:
  c10::Device device_;
  std::deque<c10::Event> events_;
};

/// The most memory of the device that tensors took while it lives; 0 on the CPU.
class Peak {
 public:
  explicit Peak(c10::Device device) {
    if (device.is_cpu()) return;
    index_ = c10::impl::VirtualGuardImpl(device.type()).getDevice().index();
    allocator_ = c10::getDeviceAllocator(device.type());
    allocator_->resetPeakStats(index_);
  }
  double mib() const {
    if (allocator_ == nullptr) return 0;
    const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<double>(allocator_->getDeviceStats(index_).allocated_bytes[all].peak) / (1 << 20);
  }

 private:
  c10::DeviceAllocator* allocator_ = nullptr;
  c10::DeviceIndex index_ = 0;
};

StepTimes times_from(const Json& json) {
  return {.name = json.at("name"),
          .torch = json.at("torch"),
          .training_ms = json.at("training_ms"),
          .inference_ms = json.at("inference_ms"),
          .training_peak_mib = json.at("training_peak_mib"),
          .inference_peak_mib = json.at("inference_peak_mib"),
          .losses = json.at("losses"),
          .inference_loss = json.at("inference_loss")};
}

// What the rival reads, and by what it and we take turns; the folder goes with it.
struct RivalFolder {
  fs::path folder, input, go, done;
  explicit RivalFolder(const fs::path& parent)
      : folder(parent / fmt::format("tpgm-bench-step-{}", ::getpid())),
        input(folder / "step.safetensors"),
        go(folder / "go"),
        done(folder / "done") {
    fs::create_directories(folder);
    for (const auto& path : {go, done}) {
      TORCH_CHECK(::mkfifo(path.c_str(), 0600) == 0, "[bench step] cannot make '", path.string(), "'");
    }
  }
  ~RivalFolder() {
    std::error_code ignored;
    // Not remove_all: LibTorch 2.11 brings one of its own, which crashes.
    for (const auto& path : {input, go, done, folder}) fs::remove(path, ignored);
  }
};

/// Python with the rival's script. On the CPU it waits for its turn before each step, so that a machine whose
/// speed drifts is fair to both.
class Rival {
 public:
  Rival(const StepOptions& options, const RivalFolder& folder)
      : name_(options.python),
        script_(options.rival.string()),
        // Open in both directions, or opening would wait for the other side.
        go_(::open(folder.go.c_str(), O_RDWR | O_CLOEXEC)),
        done_(::open(folder.done.c_str(), O_RDWR | O_CLOEXEC)) {
    const std::string command = fmt::format("'{}' '{}' '{}'", options.python, script_, folder.input.string());
    pipe_ = ::popen(command.c_str(), "r");
    TORCH_CHECK(pipe_ != nullptr && go_ >= 0 && done_ >= 0, "[bench step] cannot run Python");
  }
  ~Rival() {
    ::close(go_);  // or it would wait for its turn forever
    ::close(done_);
    if (pipe_ != nullptr) ::pclose(pipe_);
  }
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;

  /// Until it has done its warm-up or its step.
  void wait_ready() {
    pollfd waiting[2]{{done_, POLLIN, 0}, {::fileno(pipe_), POLLIN, 0}};
    char mark = 0;
    if (::poll(waiting, 2, -1) > 0 && (waiting[0].revents & POLLIN) != 0 && ::read(done_, &mark, 1) == 1)
      return;
    finish();  // it has something to say: why it stopped
    TORCH_CHECK(false, "[bench step] the rival ended before its time");
  }
  void take_turn() {
    TORCH_CHECK(::write(go_, ".", 1) == 1, "[bench step] the rival does not listen");
    wait_ready();
  }

  /// Its report.
  std::vector<StepTimes> finish() {
    std::string said;
    for (char buffer[4096]; const std::size_t count = ::fread(buffer, 1, sizeof buffer, pipe_);) {
      said.append(buffer, count);
    }
    const int status = ::pclose(std::exchange(pipe_, nullptr));
    const Json json = Json::parse(said, nullptr, /*allow_exceptions=*/false);
    TORCH_CHECK(!json.is_object() || !json.contains("error"), "[bench step] --python '", name_,
                "': ", json.value("error", ""));
    TORCH_CHECK(status == 0 && json.is_object(), "[bench step] --python: '", name_, "' could not run ",
                script_, " (",
                WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                                  : fmt::format("signal {}", WTERMSIG(status)),
                ")");
    std::vector<StepTimes> times;
    for (const auto& each : json.at("runs")) times.push_back(times_from(each));
    return times;
  }

 private:
  std::string name_, script_;
  int go_, done_;
  FILE* pipe_ = nullptr;
};

struct Median {
  double ms = 0, peak_mib = 0;
};

Median measure(c10::Device device, const StepReport& counts, Rival* rival,
               const std::function<void()>& work) {
  for (std::int64_t i = 0; i < counts.warmup; ++i) work();
  if (!device.is_cpu()) {
    const Peak peak(device);
    Marks marks(device);
    marks.add();
    for (std::int64_t i = 0; i < counts.repeats; ++i) {
      work();
      marks.add();
    }
    return {marks.median_ms(), peak.mib()};
  }
  std::vector<double> laps;
  if (rival) rival->wait_ready();
  for (std::int64_t i = 0; i < counts.repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    laps.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    if (rival) rival->take_turn();
  }
  return {median(std::move(laps)), 0};
}

at::Tensor forward(Classifier& model, const at::Tensor& images, bool amp) {
  std::optional<Autocast> autocast;
  if (amp) autocast.emplace(images.device().type());
  return model.forward(images);
}

StepTimes measure_ours(Classifier& model, const StepOptions& options, const StepReport& counts,
                       const at::Tensor& images, const at::Tensor& labels, Rival* rival) {
  StepTimes times;
  times.name = "tpgm";
  times.torch = TORCH_VERSION;
  std::vector<at::Tensor> losses;  // on the device until the clock has stopped
  {
    FusedAdamW optimizer(model.parameters());
    model.train();
    const Median median = measure(options.device, counts, rival, [&] {
      const at::Tensor loss =
          at::cross_entropy_loss(forward(model, images, options.amp).to(at::kFloat), labels);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      losses.push_back(loss.detach());
    });
    times.training_ms = median.ms;
    times.training_peak_mib = median.peak_mib;
  }
  for (const auto& loss : losses) times.losses.push_back(loss.item<double>());

  model.eval();
  const at::NoGradGuard no_grad;
  at::Tensor logits;
  const Median median =
      measure(options.device, counts, rival, [&] { logits = forward(model, images, options.amp); });
  times.inference_ms = median.ms;
  times.inference_peak_mib = median.peak_mib;
  times.inference_loss = at::cross_entropy_loss(logits.to(at::kFloat), labels).item<double>();
  return times;
}

Layout layout_of(Family family) {
  if (is_clip(family)) return Layout::kOpenAi;
  return family == Family::kResNet ? Layout::kTorchvision : Layout::kTimm;
}

// Weights as the library calls them, below "weights/", with a head where it has none: "head/".
StateDict rival_tensors(const Classifier& model, const ModelConfig& config) {
  StateDict ours{"Tensor"}, all{"Tensor"};
  const bool clip = is_clip(config.family);
  const std::string backbone = "backbone.", head = "head.";
  for (const auto& item : state_dict(model)) {
    if (item.key().starts_with(backbone)) {
      ours.insert((clip ? "visual." : "") + item.key().substr(backbone.size()), item.value());
    } else if (clip) {
      all.insert("head/" + item.key().substr(head.size()), item.value());
    } else {
      ours.insert(item.key(), item.value());
    }
  }
  const Renamed theirs = from_ours(ours, config, layout_of(config.family));
  TORCH_CHECK(theirs.unknown.empty(), "[bench step] the rival's library has no name for '",
              theirs.unknown.front(), "'");
  for (const auto& item : theirs.tensors) all.insert("weights/" + item.key(), item.value());
  return all;
}

Json sizes_json(ModelConfig config) {
  Json json{{"family", to_text(config.family)}};
  visit_sizes(
      config.family,
      [&](const char* name, const char*, const auto& value) {
        if (value) json[name] = *value;
      },
      config);
  return json;
}

}  // namespace

StepReport measure_step(const StepOptions& options) {
  const bool cuda = options.device.is_cuda();
  TORCH_CHECK(
      !cuda || torch::cuda::is_available(),
      "[bench step] --device cuda: no CUDA device is visible, or this LibTorch was built without CUDA");
  TORCH_CHECK(options.python.empty() || fs::exists(options.rival), "[bench step] --rival: there is no '",
              options.rival.string(), "'; start in the folder of the sources, or say where it is");
  ModelConfig config = options.model;
  set_defaults(config);

  at::manual_seed(1);
  const auto backbone = make_backbone(config);
  backbone->reset_parameters();
  Classifier model(backbone, ClassifierOptions().num_classes(options.classes));

  StepReport report;
  report.model = to_text(config);
  report.image_size = backbone->image_size();
  report.channels = backbone->channels();
  report.channels_last = options.channels_last.value_or(is_resnet(config.family));
  report.warmup = options.warmup.value_or(cuda ? 10 : 2);
  report.repeats = options.repeats.value_or(cuda ? 20 : 5);
  for (const auto& parameter : model.parameters()) report.parameters += parameter.numel();
  at::Tensor images = at::randn({options.batch_size, report.channels, report.image_size, report.image_size});
  const at::Tensor labels = at::randint(options.classes, {options.batch_size}, at::kLong);

  std::optional<RivalFolder> folder;
  std::optional<Rival> rival;
  if (!options.python.empty()) {
    folder.emplace(options.folder);
    StateDict tensors = rival_tensors(model, config);
    tensors.insert("images", images);
    tensors.insert("labels", labels);
    const Json settings{
        {"model", sizes_json(config)},
        {"device", options.device.str()},
        {"amp", options.amp},
        {"channels_last", report.channels_last},
        {"classes", options.classes},
        {"threads", at::get_num_threads()},
        {"warmup", report.warmup},
        {"repeats", report.repeats},
        {"turns", !cuda},
        {"compile", options.compile},
        {"adamw", {{"lr", kRate}, {"betas", {kBeta1, kBeta2}}, {"weight_decay", kDecay}, {"eps", kEps}}}};
    save_safetensors(tensors, folder->input, {{"settings", settings.dump()}});
    rival.emplace(options, *folder);
    if (cuda) report.rivals = rival->finish();
  }

  // As training scripts have it, and the rival.
  at::globalContext().setBenchmarkCuDNN(true);
  model.to(options.device);
  images = images.to(options.device);
  if (report.channels_last) {
    to_channels_last(model);
    images = images.contiguous(at::MemoryFormat::ChannelsLast);
  }
  const bool turns = rival && !cuda;
  report.ours =
      measure_ours(model, options, report, images, labels.to(options.device), turns ? &*rival : nullptr);
  if (turns) report.rivals = rival->finish();
  return report;
}

}  // namespace tpgm::benchmarks

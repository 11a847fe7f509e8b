#include "tpgm/train/run_state.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <functional>
#include <vector>

namespace tpgm {
namespace {

at::Generator generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

// A part of the state, the names of whose tensors begin with `prefix`.
struct Part {
  const char* prefix;
  std::function<NamedTensors()> save;
  std::function<void(const NamedTensors&)> load;
};

std::vector<Part> list_of(const RunParts& run, const std::filesystem::path& file) {
  std::vector<Part> parts = {
      {"model.", [&] { return state_dict(run.model); },
       [&](const NamedTensors& state) { load_state_dict(run.model, state, {}, file); }},
      {"optimizer.", [&] { return run.optimizer.state_dict(); },
       [&](const NamedTensors& state) { run.optimizer.load_state_dict(state); }},
      {"method.", [&] { return run.method.state_dict(); },
       [&](const NamedTensors& state) { run.method.load_state_dict(state); }},
      {"random.",
       [&] {
         NamedTensors state;
         state.insert("cpu", generator(at::kCPU).get_state());
         if (run.device.is_cuda()) state.insert("cuda", generator(run.device).get_state());
         return state;
       },
       [&](const NamedTensors& state) {
         generator(at::kCPU).set_state(state["cpu"]);
         const auto* cuda = state.find("cuda");
         if (cuda && run.device.is_cuda()) generator(run.device).set_state(*cuda);
       }},
  };
  if (run.ema) {
    parts.push_back({"ema.", [&] { return run.ema->state_dict(); },
                     [&](const NamedTensors& state) { run.ema->load_state_dict(state); }});
  }
  return parts;
}

}  // namespace

NamedTensors tensors_of(const RunParts& parts) {
  NamedTensors all;
  for (const auto& part : list_of(parts, {})) {
    for (const auto& item : with_prefix(part.save(), part.prefix)) all.insert(item.key(), item.value());
  }
  return all;
}

void load_tensors(const RunParts& parts, const NamedTensors& tensors, const std::filesystem::path& file) {
  for (const auto& part : list_of(parts, file)) part.load(below(tensors, part.prefix));
}

void check_finite(const Classifier& model, int64_t step, const std::string& advice) {
  const at::NoGradGuard no_grad;
  const auto norms = at::_foreach_norm(model.parameters(), 2);
  TORCH_CHECK(at::stack(norms).isfinite().all().item<bool>(), "[check_finite] step ", step,
              ": the weights are not finite any more, though the loss was; ", advice,
              ". A smaller `lr` or `clip-grad` 1 may help");
}

}  // namespace tpgm

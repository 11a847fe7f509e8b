// Loads TorchScript, registers its tensors and checks its output.
#include "tpgm/models/script.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <utility>

#include "tpgm/base/error_text.h"
#include "tpgm/base/names.h"

namespace tpgm {
namespace {

constexpr const char* kClass = "ScriptBackbone";

// A submodule of the script, so that train() works on each submodule, too.
class Part : public torch::nn::Module {
 public:
  explicit Part(torch::jit::Module script) : script_(std::move(script)) {}
  void train(bool on) override {
    script_.train(on);
    Module::train(on);
  }

 private:
  torch::jit::Module script_;
};

// nn::Module allows no dots in names: "layer1.0.weight" is registered in the child "0" of the child "layer1".
template <typename Register>
void register_below(torch::nn::Module& root, torch::jit::Module script, const std::string& name,
                    const Register& add) {
  torch::nn::Module* owner = &root;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const std::string part = name.substr(begin, dot - begin);
    const auto children = owner->named_children();
    const auto* child = children.find(part);
    script = script.attr(part).toModule();
    owner = child ? child->get() : owner->register_module(part, std::make_shared<Part>(script)).get();
    begin = dot + 1;
  }
  add(*owner, name.substr(begin));
}

// The blocks by block_name(), in order. A parameter outside all blocks, at the root or beside them
// ("encoder.position" beside "encoder.layers.0"), is a block itself, so that no block contains another.
std::vector<std::string> blocks_of(const std::vector<std::string>& names) {
  std::vector<std::string> all, blocks;
  for (const auto& name : names) all.push_back(name.find('.') == std::string::npos ? name : block_name(name));
  for (size_t i = 0; i < names.size(); ++i) {
    const bool holds_others = std::any_of(
        all.begin(), all.end(), [&](const std::string& other) { return other.starts_with(all[i] + "."); });
    const std::string& block = holds_others ? names[i] : all[i];
    if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace

ScriptBackbone::ScriptBackbone(const std::filesystem::path& file, int64_t image_size, int64_t channels)
    : path_(file), image_size_(image_size), channels_(channels) {
  std::error_code error;
  TORCH_CHECK(std::filesystem::is_regular_file(path_, error), "[", kClass, "] '", file.string(),
              "' is not a file; expected one saved with torch.jit.save");
  try {
    script_ = torch::jit::load(file.string(), at::kCPU);
  } catch (const std::exception& failure) {
    TORCH_CHECK(false, "[", kClass, "] '", file.string(), "' is not a TorchScript module (",
                short_message(failure),
                "); save it with torch.jit.save(torch.jit.trace(model, images), file)");
  }
  // Weights are fp32, whatever their type in the file.
  const auto widen = [](at::Tensor tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(at::kFloat));
  };
  for (const at::Tensor& parameter : script_.parameters()) widen(parameter);
  for (const at::Tensor& buffer : script_.buffers()) widen(buffer);
  std::vector<std::string> names;
  for (const auto& item : script_.named_parameters()) {
    register_below(*this, script_, item.name, [&](torch::nn::Module& owner, const std::string& name) {
      owner.register_parameter(name, item.value, item.value.requires_grad());
    });
    names.push_back(item.name);
  }
  blocks_ = blocks_of(names);
  TORCH_CHECK(!blocks_.empty(), "[", kClass, "] '", file.string(),
              "' has no parameters, so there is nothing to tune: torch.jit.freeze makes them constants; save "
              "it before that");
  for (const auto& item : script_.named_buffers()) {
    register_below(*this, script_, item.name, [&](torch::nn::Module& owner, const std::string& name) {
      owner.register_buffer(name, item.value);
    });
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> kept;
  for (const auto& buffer : buffers()) kept.push_back(buffer.clone());
  eval();
  num_features_ = run(at::zeros({1, channels_, image_size_, image_size_})).size(1);
  train();
  const auto after = named_buffers();
  for (size_t i = 0; i < kept.size(); ++i) {
    const std::string& name = after[i].key();
    const bool statistics = name.ends_with("running_mean") || name.ends_with("running_var");
    // It would normalize by the batch in evaluation, and change the statistics while doing so.
    TORCH_CHECK(!statistics || after[i].value().equal(kept[i]), "[", kClass, "] '", file.string(),
                "' updates BatchNorm's '", name,
                "' in evaluation, too, because it was traced in training mode; call model.eval() before "
                "torch.jit.trace, or use torch.jit.script");
    after[i].value().copy_(kept[i]);
  }
}

at::Tensor ScriptBackbone::run(const at::Tensor& images) {
  torch::jit::IValue output;
  try {
    output = script_.forward({images});
  } catch (const std::exception& failure) {
    const std::string what = short_message(failure);
    TORCH_CHECK(false, "[", kClass, "] '", path_.string(), "' fails on images ",
                fmt::format("[{}]", fmt::join(images.sizes(), ",")), ": ", what,
                what.find("CUDA") != std::string::npos
                    ? ""
                    : "; does it want other sizes? They go behind the file, "
                      "script:FILE:image_size=32,channels=1");
  }
  TORCH_CHECK(output.isTensor(), "[", kClass, "] '", path_.string(), "' returns a ", output.tagKind(),
              ", expected one tensor [batch, features]; wrap the module so that it returns only that");
  const at::Tensor features = output.toTensor();
  TORCH_CHECK(features.dim() == 2 && features.size(0) == images.size(0) && features.is_floating_point(), "[",
              kClass, "] '", path_.string(), "' returns ", features.scalar_type(), " ",
              fmt::format("[{}]", fmt::join(features.sizes(), ",")), " for ", images.size(0),
              " images, expected [batch, features]; pool or flatten inside the module");
  return features;
}

at::Tensor ScriptBackbone::features(const at::Tensor& images, const std::string& layer) {
  TORCH_CHECK(layer.empty(), "[", kClass, "] a script has no layer '", layer,
              "' to take features of; only its output");
  return run(images);
}

int64_t ScriptBackbone::num_features(const std::string& layer) const {
  TORCH_CHECK(layer.empty(), "[", kClass, "] a script has no layer '", layer,
              "' to take features of; only its output");
  return num_features_;
}

int64_t ScriptBackbone::multiply_adds() const {
  TORCH_CHECK(false, "[", kClass, "] '", path_.string(), "': what a script computes cannot be counted");
}

void ScriptBackbone::reset_parameters() {
  TORCH_CHECK(false, "[", kClass, "] '", path_.string(),
              "' cannot be drawn anew: its weights are in its file");
}

void ScriptBackbone::train(bool on) {
  script_.train(on);  // only the script has the modules without parameters and buffers
  Backbone::train(on);
}

// The tensors are shared: moving those of the script moves those registered here.
void ScriptBackbone::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  script_.to(device, dtype, non_blocking);
}
void ScriptBackbone::to(torch::Dtype dtype, bool non_blocking) { script_.to(dtype, non_blocking); }
void ScriptBackbone::to(torch::Device device, bool non_blocking) { script_.to(device, non_blocking); }

}  // namespace tpgm

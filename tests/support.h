// What tests share: the devices to run on, and models and data to run with.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace tpgm::testing {

/// A fixture for tests that run on every device: instantiate with TPGM_ON_EVERY_DEVICE(Suite). The CUDA
/// instances carry "Cuda" in their names and skip themselves where there is no GPU.
class OnDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !torch::cuda::is_available()) {
      GTEST_SKIP() << "no CUDA device";
    }
    torch::manual_seed(0);
  }
  torch::Device device() const { return torch::Device(std::string(GetParam()) == "Cuda" ? "cuda" : "cpu"); }
};

#define TPGM_ON_EVERY_DEVICE(Suite)                                       \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, ::testing::Values("Cpu", "Cuda"), \
                           [](const auto& info) { return std::string(info.param); })

/// What `call` throws, as text; fails if it does not throw a c10::Error.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

/// A small network with convolutions, BatchNorm and a head, as fine-tuning meets them: 3×8×8 images, 5
/// classes.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(6));
    hidden = register_module("hidden", torch::nn::Linear(6 * 4 * 4, 16));
    head = register_module("head", torch::nn::Linear(16, 5));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm->forward(conv->forward(x)));
    x = torch::avg_pool2d(x, 2).flatten(1);
    return head->forward(torch::relu(hidden->forward(x)));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

struct Batch {
  torch::Tensor images, labels;
};

/// The i-th batch of a fixed stream; independent of the global random state.
inline Batch batch(int64_t i, torch::Device device, torch::ScalarType dtype = torch::kFloat,
                   int64_t size = 16) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + i));
  return {torch::randn({size, 3, 8, 8}, generator).to(device, dtype),
          torch::randint(5, {size}, generator, torch::kLong).to(device)};
}

inline torch::Tensor loss(Net& net, const Batch& data) {
  return torch::cross_entropy_loss(net->forward(data.images), data.labels);
}

}  // namespace tpgm::testing

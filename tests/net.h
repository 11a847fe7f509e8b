// A model and data for tests that train.
#pragma once

#include "tests/support.h"
#include "tests/torch_nn.h"

namespace tpgm::testing {

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

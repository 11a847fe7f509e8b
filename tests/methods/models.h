// Models that are special in one way each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/torch_nn.h"

namespace tpgm::testing {

/// A linear layer around a given weight, which may be that of another layer too.
struct DenseImpl : torch::nn::Module {
  explicit DenseImpl(const torch::Tensor& shared)
      : weight(register_parameter("weight", shared)),
        bias(register_parameter("bias", torch::zeros({shared.size(0)}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight, bias); }
  torch::Tensor weight, bias;
};
TORCH_MODULE(Dense);

/// A module that holds one weight under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    const auto shared = torch::randn({4, 4});
    encoder = register_module("encoder", Dense(shared));
    head = register_module("head", Dense(shared));
  }
  torch::Tensor forward(const torch::Tensor& x) { return head->forward(torch::tanh(encoder->forward(x))); }
  Dense encoder{nullptr}, head{nullptr};
};
TORCH_MODULE(Tied);

/// Tensors of all ranks, moved at random, and a loss that pulls them about.
struct BagImpl : torch::nn::Module {
  explicit BagImpl(const torch::TensorOptions& options) {
    const auto size = [] { return torch::randint(1, 7, {1}).item<int64_t>(); };
    for (int64_t rank = 0; rank < 5; ++rank) {
      for (int i = 0; i < 2; ++i) {
        std::vector<int64_t> shape(rank);
        std::generate(shape.begin(), shape.end(), size);
        register_parameter(std::string(1, "abcde"[rank]) + "01"[i], torch::randn(shape, options));
      }
    }
  }
  torch::Tensor loss() {
    torch::Tensor total;
    for (const auto& each : parameters()) {
      const auto term = (each * torch::randn_like(each)).sum() + each.pow(2).sum();
      total = total.defined() ? total + term : term;
    }
    return total;
  }
};
TORCH_MODULE(Bag);

/// BatchNorm as other libraries write it, without num_batches_tracked.
struct OwnNormImpl : torch::nn::Module {
  OwnNormImpl() {
    weight = register_parameter("weight", torch::ones(6));
    mean = register_buffer("running_mean", torch::zeros(6));
    variance = register_buffer("running_var", torch::ones(6));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::batch_norm(x, weight, {}, mean, variance, is_training(), 0.1, 1e-5, false);
  }
  torch::Tensor weight, mean, variance;
};
TORCH_MODULE(OwnNorm);

}  // namespace tpgm::testing

// What the tests of methods share: models with equal weights, a training step, and comparisons.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/net.h"
#include "tpgm/core/displacements.h"
#include "tpgm/methods/method.h"

namespace tpgm::testing {

using OptimizerOf = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

// Weight decay everywhere, so that conv.bias moves too: BatchNorm leaves it without a gradient.
inline OptimizerOf sgd(double lr = 0.05) {
  return [lr](auto parameters) {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(lr).momentum(0.9).nesterov(true).weight_decay(1e-2));
  };
}
inline OptimizerOf adam(double lr = 1e-2) {
  return [lr](auto parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(lr).weight_decay(1e-2));
  };
}
inline OptimizerOf adamw(double lr = 1e-2) {
  return [lr](auto parameters) {
    return std::make_unique<torch::optim::AdamW>(parameters,
                                                 torch::optim::AdamWOptions(lr).weight_decay(0.1));
  };
}

/// A fixture whose training repeats bit for bit, in full precision, on CUDA too.
class Repeatable : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
    at::globalContext().setAllowTF32CuDNN(false);
    at::set_num_threads(
        1);  // the models are tiny: threads that wait for each other would take most of the time
  }
};

inline NamedTensors copy(const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) result.insert(item.key(), item.value().detach().clone());
  return result;
}
/// Parameters and buffers.
inline NamedTensors copy(const Net& net) { return copy(named_tensors(*net)); }

inline void assign(Net& net, const NamedTensors& values) {
  const torch::NoGradGuard no_grad;
  for (auto& item : named_tensors(*net)) item.value().copy_(values[item.key()]);
}

inline Net make_net(torch::Device device, torch::ScalarType dtype = torch::kFloat) {
  Net net;
  net->to(device);
  if (dtype != torch::kFloat) net->to(dtype);  // LibTorch converts integer buffers, too
  return net;
}
inline Net twin_of(const Net& net) {
  auto twin = make_net(net->conv->weight.device(), net->conv->weight.scalar_type());
  assign(twin, copy(net));
  return twin;
}

inline Batch batch_for(const Net& net, int64_t i) {
  return batch(i, net->conv->weight.device(), net->conv->weight.scalar_type());
}

constexpr int64_t kHeldOut = 10'000;  // the batch with which held-out data starts

/// A closure over held-out batches, a new one at each call.
inline Closure held_out_loss(Net net) {
  auto next = std::make_shared<int64_t>(kHeldOut);
  return [net, next]() mutable { return loss(net, batch_for(net, (*next)++)); };
}

/// The i-th step of a training loop, as Method documents it.
inline void train_step(Net& net, torch::optim::Optimizer& optimizer, Method& method, int64_t i,
                       const Closure& radius_loss) {
  optimizer.zero_grad();
  loss(net, batch_for(net, i)).backward();
  method.before_step();
  optimizer.step();
  method.after_step(radius_loss);
}

/// Steps without a method: weights that have moved.
inline void train_plainly(Net& net, int64_t steps, const OptimizerOf& make_optimizer = sgd()) {
  auto optimizer = make_optimizer(net->parameters());
  for (int64_t i = 0; i < steps; ++i) {
    optimizer->zero_grad();
    loss(net, batch_for(net, i)).backward();
    optimizer->step();
  }
}

/// n_r of every row (l2: n of the whole), as a vector of doubles on the host.
inline torch::Tensor distances(const torch::Tensor& tensor, const torch::Tensor& anchor, Norm norm) {
  const auto delta = (tensor.detach().to(torch::kDouble) - anchor.to(torch::kDouble)).cpu();
  switch (norm) {
    case Norm::kL2:
      return delta.pow(2).sum().sqrt().reshape({1});
    case Norm::kMars:
    case Norm::kMarsMax:
      break;
  }
  return delta.dim() < 2 ? delta.abs().sum().reshape({1}) : delta.abs().flatten(1).sum(1);
}

inline std::map<std::string, double> as_map(const NamedNumbers& numbers) {
  std::map<std::string, double> result;
  for (const auto& item : numbers) result[item.key()] = item.value();
  return result;
}

/// Largest difference of any element; infinite if a name is missing or something is NaN.
inline double difference(const NamedTensors& a, const NamedTensors& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& item : a) {
    const auto* other = b.find(item.key());
    const auto apart =
        other ? (item.value().to(torch::kDouble) - other->to(torch::kDouble)).abs().max().item<double>()
              : INFINITY;
    largest = std::isnan(apart) ? INFINITY : std::max(largest, apart);
  }
  return largest;
}

/// Bit for bit, NaN equal to itself.
inline bool identical(const torch::Tensor& a, const torch::Tensor& b) {
  const auto bytes = [](const torch::Tensor& t) {
    return t.detach().cpu().contiguous().reshape({-1}).view(torch::kByte);
  };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && torch::equal(bytes(a), bytes(b));
}
inline void expect_identical(const NamedTensors& actual, const NamedTensors& expected) {
  EXPECT_EQ(actual.keys(), expected.keys());
  for (const auto& item : expected) {
    const auto* found = actual.find(item.key());
    EXPECT_TRUE(found && identical(*found, item.value())) << item.key();
  }
}

}  // namespace tpgm::testing

// The methods' equations, transcribed literally in plain torch operations: what method.md says, and no more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/methods/training.h"
#include "tests/torch_nn.h"
#include "tpgm/methods/ftp.h"
#include "tpgm/methods/tpgm.h"

namespace tpgm::testing {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

/// The loss of Net in eval() mode with the given parameters in place of its own; buffers are its own.
inline Tensor functional_loss(const Net& net, const Tensors& parameters, const Batch& data) {
  const auto& p = parameters;
  auto x = torch::conv2d(data.images, p[0], p[1], /*stride=*/1, /*padding=*/1);
  x = torch::batch_norm(x, p[2], p[3], net->norm->running_mean, net->norm->running_var, /*training=*/false,
                        /*momentum=*/0.1, /*eps=*/1e-5, /*cudnn_enabled=*/false);
  x = torch::avg_pool2d(torch::relu(x), 2).flatten(1);
  x = torch::linear(torch::relu(torch::linear(x, p[4], p[5])), p[6], p[7]);
  return torch::cross_entropy_loss(x, data.labels);
}

/// n_r of every row (l2: of the whole), in a shape that broadcasts with the displacement.
inline Tensor row_distances(const Tensor& displacement, Norm norm) {
  switch (norm) {
    case Norm::kL2:
      return displacement.pow(2).sum().sqrt();
    case Norm::kMars:
    case Norm::kMarsMax:
      break;
  }
  if (displacement.dim() < 2) return displacement.abs().sum();
  std::vector<int64_t> rows(displacement.dim(), 1);
  rows[0] = -1;
  return displacement.abs().flatten(1).sum(1).reshape(rows);
}

/// θ₀ + αΔ with α = γ / n where γ ≤ n, else 1.
inline Tensor projected(const Tensor& anchor, const Tensor& displacement, const Tensor& n,
                        const Tensor& gamma) {
  const auto ratio = torch::where(gamma <= n, gamma / n.clamp_min(1e-300), torch::ones_like(n));
  return anchor + (ratio * displacement).to(anchor.scalar_type());
}

/// A method's equations, on a model of their own.
struct Literal {
  virtual ~Literal() = default;
  virtual Tensor penalty() { return torch::zeros({}); }
  virtual void before_step(int64_t) {}
  virtual void after_step(int64_t) {}
  virtual void finish() {}
  virtual Tensor radii() { return {}; }

  void attach(const Net& model, Norm the_norm, const std::string& exclude) {
    net = model;
    norm = the_norm;
    for (const auto& item : net->named_parameters()) {
      if (item.key() != exclude) {
        parameters.push_back(item.value());
        anchor.push_back(item.value().detach().clone());
      }
    }
  }
  void measure() {
    delta.clear(), n.clear();
    Tensors low, high;
    for (size_t k = 0; k < parameters.size(); ++k) {
      delta.push_back(parameters[k].detach() - anchor[k]);
      const auto rows = row_distances(delta[k], norm);
      low.push_back(rows.min()), high.push_back(rows.max());
      n.push_back(norm == Norm::kMarsMax ? rows.max() : rows);
    }
    smallest = torch::stack(low).to(torch::kDouble);
    largest = torch::stack(high).to(torch::kDouble);
  }
  Tensors all_projected(const Tensor& gamma) {
    Tensors result;
    for (size_t k = 0; k < parameters.size(); ++k)
      result.push_back(projected(anchor[k], delta[k], n[k], gamma[k]));
    return result;
  }
  void project(const Tensor& gamma) {
    const torch::NoGradGuard no_grad;
    const auto values = all_projected(gamma);
    for (size_t k = 0; k < parameters.size(); ++k) parameters[k].copy_(values[k]);
  }

  Net net{nullptr};
  Norm norm = Norm::kL2;
  Tensors parameters, anchor, delta, n;
  Tensor smallest, largest;
};

/// What TPGM and FTP share: radii, or ratios, moved by torch's Adam.
struct LiteralRadii : Literal {
  void start(const Tensor& first, double lr) {
    learned = first.clone().requires_grad_(true);
    adam.emplace(Tensors{learned}, torch::optim::AdamOptions(lr));
  }
  void clamp() {
    const torch::NoGradGuard no_grad;
    const auto low = relative ? 1e-8 / largest : torch::full_like(largest, 1e-8);
    learned.copy_(torch::clamp(learned, low, relative ? torch::ones_like(largest) : largest));
  }
  Tensor gamma() { return relative ? learned * largest : learned; }
  Tensor radii() override { return gamma().detach(); }

  bool relative = false;
  Tensor learned;
  std::optional<torch::optim::Adam> adam;
};

struct LiteralTpgm : LiteralRadii {
  /// `groups` has the tensors of each group, for tv.
  LiteralTpgm(TpgmOptions the_options, std::vector<std::vector<int64_t>> the_groups)
      : options(std::move(the_options)), groups(std::move(the_groups)) {
    relative = options.scale() == RadiusScale::kRelative;
  }
  Tensor radius_loss() {
    auto total = functional_loss(net, all_projected(gamma()), batch_for(net, next++));
    total = total + options.mu() * gamma().pow(2).sum();
    const auto ratios = gamma() / largest;
    for (const auto& group : groups)
      for (size_t i = 1; i < group.size(); ++i)
        total = total + options.tv() * (ratios[group[i]] - ratios[group[i - 1]]).abs();
    return total;
  }
  void learn(int64_t steps) {
    if (!learned.defined()) {
      const auto first =
          options.init() == RadiusInit::kHalf ? smallest / 2 : torch::full_like(smallest, options.eps());
      start(relative ? first / largest : first, options.radius_lr());
    }
    for (int64_t i = 0; i < steps; ++i) {
      clamp();
      adam->zero_grad();
      radius_loss().backward();
      adam->step();
    }
  }
  void after_step(int64_t t) override {
    const bool learns = !options.every_or_default().at_end() && t % options.every_or_default().steps == 0;
    if (options.every_or_default().at_end() || (!learns && options.project() == ProjectWhen::kOnUpdate))
      return;
    measure();
    learn(learns ? options.radius_steps().value_or(1) : 0);
    clamp();
    project(gamma());
  }
  void finish() override {
    if (options.every_or_default().at_end()) {
      measure();
      learn(options.radius_steps().value_or(200));
      clamp();
      project(gamma());
    }
  }
  TpgmOptions options;
  std::vector<std::vector<int64_t>> groups;
  int64_t next = kHeldOut;
};

struct LiteralFtp : LiteralRadii {
  explicit LiteralFtp(FtpOptions the_options) : options(std::move(the_options)) {}
  void before_step(int64_t t) override {
    radius_gradients.clear();
    for (size_t k = 0; t > 0 && k < parameters.size(); ++k) {
      auto terms =
          torch::where(n[k] > 0, parameters[k].grad() * delta[k] / n[k], torch::zeros_like(delta[k]));
      if (options.mask()) terms = torch::where(learned.detach()[k] < n[k], terms, torch::zeros_like(terms));
      const auto gradient = terms.sum();
      radius_gradients.push_back(gradient.item<double>() > 0 ? options.k() * gradient : gradient);
    }
  }
  void after_step(int64_t t) override {
    measure();
    if (t == 0) {
      start(torch::full_like(largest, 1e-8), options.radius_lr());
    } else {
      learned.mutable_grad() = torch::stack(radius_gradients).to(torch::kDouble);
      adam->step();
    }
    clamp();
    project(gamma());
  }
  FtpOptions options;
  Tensors radius_gradients;
};

struct LiteralSpd : Literal {
  explicit LiteralSpd(double the_lambda) : lambda(the_lambda) {}
  void before_step(int64_t) override {
    measure();
    before = largest, astray.clear();
    for (size_t k = 0; k < parameters.size(); ++k)
      astray.push_back((parameters[k].grad() * delta[k]).sum().item<double>() > 0);
  }
  void after_step(int64_t) override {
    const torch::NoGradGuard no_grad;
    measure();
    for (size_t k = 0; k < parameters.size(); ++k) {
      if (astray[k]) {
        const auto r = ((largest[k] - before[k]) / largest[k]).clamp(0, 1).to(delta[k].scalar_type());
        parameters[k].copy_(parameters[k] - lambda * r * delta[k]);
      }
    }
  }
  double lambda;
  Tensor before;
  std::vector<bool> astray;
};

struct LiteralMarsSp : Literal {
  explicit LiteralMarsSp(double the_radius) : radius(the_radius) {}
  void after_step(int64_t) override {
    measure();
    project(torch::full_like(largest, radius));
  }
  double radius;
};

struct LiteralL2Sp : Literal {
  explicit LiteralL2Sp(double the_mu) : mu(the_mu) {}
  Tensor penalty() override {
    auto sum = torch::zeros({}, parameters[0].options().requires_grad(false));
    for (size_t k = 0; k < parameters.size(); ++k) sum = sum + (parameters[k] - anchor[k]).pow(2).sum();
    return mu * sum;
  }
  double mu;
};

struct LiteralWise : Literal {
  LiteralWise(double the_ratio, NamedTensors the_anchor) : ratio(the_ratio), all(std::move(the_anchor)) {}
  void finish() override {
    const torch::NoGradGuard no_grad;
    for (auto& item : named_tensors(*net))
      if (item.value().is_floating_point())
        item.value().copy_(all[item.key()] + ratio * (item.value() - all[item.key()]));
  }
  double ratio;
  NamedTensors all;
};

}  // namespace tpgm::testing

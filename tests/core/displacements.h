// What the tests of Displacements share: tensors of every layout, and the method written out in ATen.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support.h"
#include "tpgm/core/displacements.h"
#include "tpgm/core/held_copy.h"

namespace tpgm::testing {

using torch::Tensor;

using kernels::kNorms;
inline constexpr AnchorStorage kStorages[] = {AnchorStorage::kWeights, AnchorStorage::kBFloat16,
                                              AnchorStorage::kHost};
inline constexpr torch::ScalarType kTypes[] = {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// [rows, cols] as method.md defines rows, in float64 on the CPU.
inline Tensor in_rows(const Tensor& tensor, Norm norm) {
  const auto wide = tensor.detach().cpu().to(torch::kDouble);
  const bool one = norm == Norm::kL2 || wide.dim() < 2 || wide.numel() == 0;
  return one ? wide.reshape({1, wide.numel()}) : wide.reshape({wide.size(0), -1});
}

/// n_r of every row; one n for kMarsMax.
inline Tensor distances(const Tensor& weights, const Tensor& anchor, Norm norm) {
  const auto delta = in_rows(weights, norm) - in_rows(anchor, norm);
  switch (norm) {
    case Norm::kL2:
      return delta.square().sum(1).sqrt();
    case Norm::kMars:
      return delta.abs().sum(1);
    case Norm::kMarsMax:
      return delta.abs().sum(1).max().reshape({1});
  }
  return {};
}

/// anchor + min(1, γ/n) Δ, differentiable in γ; at γ = n the constraint is active. float64, CPU.
inline Tensor literal_projection(const Tensor& weights, const Tensor& anchor, const Tensor& radius,
                                 Norm norm) {
  const auto n = distances(weights, anchor, norm);
  const auto safe = torch::where(n > 0, n, torch::ones_like(n));
  const auto ratio = torch::where(radius <= n, radius / safe, torch::ones_like(n)) * (n > 0);
  const auto from = in_rows(anchor, norm);
  return (from + ratio.reshape({-1, 1}) * (in_rows(weights, norm) - from)).reshape(weights.sizes());
}

/// Tensors of every rank and layout, moved by about `step` from an anchor; one has not moved.
inline std::vector<Selected> every_layout(torch::Device device, torch::ScalarType dtype, double step = 0.1) {
  const auto random = [](at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble); };
  const std::vector<std::pair<std::string, std::function<Tensor()>>> makers = {
      {"scalar", [&] { return random({}); }},
      {"vector", [&] { return random({7}); }},
      {"matrix", [&] { return random({5, 9}); }},
      {"rank3", [&] { return random({2, 3, 4}); }},
      {"conv", [&] { return random({6, 5, 3, 3}); }},
      {"rank5", [&] { return random({2, 2, 3, 2, 2}); }},
      {"long_rows", [&] { return random({2, 9001}); }},
      {"one_row", [&] { return random({1, 9}); }},
      {"no_elements", [&] { return random({0}); }},
      {"no_rows", [&] { return random({0, 5}); }},
      {"no_cols", [&] { return random({5, 0}); }},
      {"channels_last", [&] { return random({6, 5, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast); }},
      {"transposed", [&] { return random({9, 5}).t(); }},
      {"transposed_conv", [&] { return random({5, 6, 3, 3}).transpose(0, 1); }},
      {"sliced", [&] { return random({5, 18}).slice(1, 2, 18, 2); }},
      {"strided_vector", [&] { return random({20}).slice(0, 1, 20, 3); }},
      {"unmoved", [&] { return random({4, 4}); }},
  };
  std::vector<Selected> selected;
  for (const auto& [name, make] : makers) {
    const auto values = make();
    // bfloat16 values, so that every kind of anchor can hold them and "unmoved" means n = 0
    const auto anchor = values.to(torch::kBFloat16).to(dtype);
    auto storage = torch::zeros({4 * values.numel() + 8}, torch::dtype(dtype).device(device));
    const auto weights = torch::as_strided(storage, values.sizes(), values.strides(), /*storage_offset=*/1);
    weights.copy_(anchor + (name == "unmoved" ? 0 : step) * random(values.sizes()).to(dtype));
    selected.push_back({name, weights.set_requires_grad(true), anchor.to(device)});
  }
  return selected;
}

inline double eps_of(torch::ScalarType dtype) {
  return dtype == torch::kDouble  ? 1e-13
         : dtype == torch::kFloat ? 3e-7
         : dtype == torch::kHalf  ? 1e-3
                                  : 8e-3;
}

inline Tensor on_host(const Tensor& tensor) { return tensor.detach().cpu().to(torch::kDouble); }

inline std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

inline void expect_equal(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t k = 0; k < actual.size(); ++k)
    EXPECT_TRUE(torch::equal(actual[k], expected[k])) << "tensor " << k;
}

/// |actual − expected| ≤ eps(dtype) · (1 + |expected|), element by element.
inline void expect_close(const Tensor& actual, const Tensor& expected, torch::ScalarType dtype,
                         const std::string& name) {
  EXPECT_TRUE(torch::allclose(on_host(actual), expected, eps_of(dtype), eps_of(dtype))) << name;
}

class DisplacementsTest : public OnDevice {
 protected:
  std::vector<Selected> two(double step = 0.1) {
    std::vector<Selected> selected;
    for (const auto* name : {"a", "b"}) {
      auto anchor = torch::randn({4, 3, 3, 3}, torch::kDouble).to(device());
      auto weights = anchor + step * torch::randn({4, 3, 3, 3}, torch::kDouble).to(device());
      selected.push_back({name, weights.set_requires_grad(true), anchor});
    }
    return selected;
  }
  Tensor scalars(const std::vector<double>& values) {
    return torch::tensor(values, torch::kDouble).to(device());
  }
  /// A radius between the nearest and the farthest row, or below the one distance there is.
  static Tensor inner(const Displacements& displacements) {
    return 0.35 * displacements.smallest() + 0.6 * displacements.largest();
  }
};

}  // namespace tpgm::testing

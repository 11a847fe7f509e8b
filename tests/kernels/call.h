// Batches of random tensors, and calls of the kernels on them with raw pointers.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/support.h"
#include "tpgm/kernels/projection.h"

namespace tpgm::kernels {

using torch::Tensor;
using Split = ParallelFor;

inline constexpr int64_t kPad = 64;   // elements on either side of every buffer
inline constexpr double kGuard = 96;  // what they hold; exact in every type

inline constexpr std::array<std::pair<DType, DType>, 7> kTypes = {{{DType::kFloat64, DType::kFloat64},
                                                                   {DType::kFloat64, DType::kBFloat16},
                                                                   {DType::kFloat32, DType::kFloat32},
                                                                   {DType::kFloat32, DType::kBFloat16},
                                                                   {DType::kFloat16, DType::kFloat16},
                                                                   {DType::kFloat16, DType::kBFloat16},
                                                                   {DType::kBFloat16, DType::kBFloat16}}};

inline torch::ScalarType scalar_type(DType type) {
  constexpr torch::ScalarType types[] = {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16};
  return types[static_cast<int>(type)];
}

/// One tensor of a batch, on the CPU.
struct Item {
  Layout layout;
  Tensor weights, anchor, gradient;  // [rows, cols]
  std::array<int64_t, 3> offsets;    // elements by which each misses an aligned address

  Tensor in_compute_type(const Tensor& tensor) const {
    return tensor.to(layout.weights == DType::kFloat64 ? torch::kDouble : torch::kFloat);
  }
  Tensor delta() const { return in_compute_type(weights) - in_compute_type(anchor); }
};

/// Random values; in every second tensor of several rows the first row has not moved.
inline std::vector<Item> random_items(const std::vector<Layout>& layouts, unsigned seed) {
  torch::manual_seed(seed);
  std::mt19937 random(seed);
  std::vector<Item> items;
  for (const auto& layout : layouts) {
    const auto wide = torch::randn({layout.rows, layout.cols}, torch::kDouble);
    auto anchor = wide.to(scalar_type(layout.anchor));
    auto weights =
        (anchor.to(torch::kDouble) + 0.1 * torch::randn_like(wide)).to(scalar_type(layout.weights));
    if (layout.rows > 1 && items.size() % 2 == 0) weights[0].copy_(anchor[0]);
    auto gradient = torch::randn_like(wide).to(scalar_type(layout.weights));
    const auto offset = [&] { return static_cast<int64_t>(random() % 2); };
    items.push_back({layout, weights, anchor, gradient, {offset(), offset(), offset()}});
  }
  return items;
}

inline std::vector<Layout> many_shapes(DType weights, DType anchor) {
  std::vector<Layout> layouts;
  for (const int64_t cols : {1, 3, 9, 31, 64, 147, 2048, 2049, 4608, 8191, 8192, 8193, 100000}) {
    for (const int64_t rows : {1, 2, 7, 8, 33, 3000})
      if (rows * cols <= 200000) layouts.push_back({rows, cols, weights, anchor});
  }
  layouts.insert(layouts.begin() + 5, {1, 0, weights, anchor});
  return layouts;
}

inline std::vector<Layout> many_tensors() {
  std::vector<Layout> layouts;
  for (int64_t i = 0; i < 1300; ++i) {
    const auto [weights, anchor] = kTypes[i % kTypes.size()];
    layouts.push_back({1 + i % 13, i % 200 == 0 ? 9000 : 1 + i % 70, weights, anchor});
  }
  return layouts;
}

/// Elements at `offset` from an aligned address, between guards.
struct Buffer {
  Buffer(const Tensor& values, int64_t offset, torch::Device device)
      : store(torch::full({values.numel() + 2 * kPad}, kGuard, values.options().device(device))),
        view(store.narrow(0, kPad + offset, values.numel()).view(values.sizes())) {
    view.copy_(values);
  }
  bool guards_hold() const {
    const auto outside = store.numel() - view.numel();
    return store.eq(kGuard).sum().item<int64_t>() - view.eq(kGuard).sum().item<int64_t>() == outside;
  }
  Tensor store, view;
};

/// What the third operands are: nothing, the gradients, memory full of NaN, the weights themselves, or
/// nothing in every second tensor and memory full of NaN in the others.
enum class Operand { kNull, kGradient, kPoisoned, kWeights, kEverySecond };

inline void whole(int64_t n, const std::function<void(int64_t, int64_t)>& body) { body(0, n); }

/// A batch on a device. Everything that a call has to write starts as NaN.
class Call {
 public:
  Call(const std::vector<Item>& items, torch::Device device, Split split = whole)
      : device_(device), split_(std::move(split)) {
    std::vector<Layout> layouts;
    for (const auto& item : items) {
      layouts.push_back(item.layout);
      weights.emplace_back(item.weights, item.offsets[0], device);
      anchor.emplace_back(item.anchor, item.offsets[1], device);
      operand.emplace_back(item.gradient, item.offsets[2], device);
    }
    plan = make_plan(layouts);
    device_tensors_ = on_device(plan.tensors);
    device_pieces_ = on_device(plan.pieces);
    const auto count = static_cast<int64_t>(items.size());
    const auto poisoned = [&](int64_t n) {
      return torch::full({n}, NAN, torch::TensorOptions(torch::kDouble).device(device));
    };
    partials_ = poisoned(2 * static_cast<int64_t>(plan.pieces.size()));
    tickets_ = torch::zeros({count}, torch::TensorOptions(torch::kInt).device(device));
    report = torch::full({1}, kAllFinite, tickets_.options());
    rows = poisoned(plan.rows);
    min = poisoned(count);
    max = poisoned(count);
    row_dots_ = poisoned(plan.rows);
    result_ = poisoned(count);
  }

  const Backend& backend() const { return device_.is_cuda() ? cuda() : cpu(); }
  Distances distances() const {
    return {rows.data_ptr<double>(), min.data_ptr<double>(), max.data_ptr<double>()};
  }

  Batch batch(Operand mode) {
    operands_.clear();
    for (size_t k = 0; k < weights.size(); ++k) {
      if (mode == Operand::kPoisoned || mode == Operand::kEverySecond) operand[k].view.fill_(NAN);
      operands_.push_back({weights[k].view.data_ptr(), anchor[k].view.data_ptr(),
                           mode == Operand::kNull || (mode == Operand::kEverySecond && k % 2 == 0) ? nullptr
                           : mode == Operand::kWeights ? weights[k].view.data_ptr()
                                                       : operand[k].view.data_ptr(),
                           plan.tensors[k].layout.weights == DType::kFloat32 &&
                               operand[k].view.scalar_type() == torch::kBFloat16});
    }
    Batch batch;
    batch.plan = &plan;
    batch.tensors = static_cast<const TensorPlan*>(device_tensors_.data_ptr());
    batch.pieces = static_cast<const Piece*>(device_pieces_.data_ptr());
    batch.operands = operands_.data();
    batch.partials = partials_.data_ptr<double>();
    batch.tickets = reinterpret_cast<uint32_t*>(tickets_.data_ptr<int32_t>());
    batch.report = report.data_ptr<int32_t>();
    batch.parallel_for = split_;
    return batch;
  }

  void measure(RowNorm norm, Operand mode = Operand::kNull) {
    backend().measure(batch(mode), norm, distances());
  }
  void project(RatioOf ratio_of, const Tensor& radii, Operand mode) {
    backend().project(batch(mode), ratio_of, distances(), limits(radii));
  }
  /// `closest` as in Limits, one number for each row.
  void measure_and_project(RowNorm norm, RatioOf ratio_of, const Tensor& radii, Operand mode,
                           const Tensor& closest = {}) {
    backend().measure_and_project(batch(mode), norm, ratio_of, distances(), limits(radii, closest));
  }
  void interpolate(const Tensor& ratios, Operand mode) {
    backend().interpolate(batch(mode), (kept_ = ratios.to(device_)).data_ptr<double>());
  }
  Tensor radius_gradients(RatioOf ratio_of, Rows which, const Tensor& radii,
                          Operand mode = Operand::kGradient) {
    backend().radius_gradients(batch(mode), ratio_of, which, distances(),
                               (kept_ = radii.to(device_)).data_ptr<double>(), row_dots_.data_ptr<double>(),
                               result_.data_ptr<double>());
    return result_.cpu();
  }
  Tensor measure_radius_gradients(RowNorm norm, RatioOf ratio_of, Rows which, const Tensor& radii,
                                  const Call& now, Operand mode = Operand::kGradient) {
    backend().measure_radius_gradients(batch(mode), norm, ratio_of, which, distances(), limits(radii).radii,
                                       now.distances(), row_dots_.data_ptr<double>(),
                                       result_.data_ptr<double>());
    return result_.cpu();
  }
  void add_displacement(double factor) { backend().add_displacement(batch(Operand::kGradient), factor); }

  int32_t code() const { return report.item<int32_t>(); }
  void expect_guards(size_t k) const {
    EXPECT_TRUE(weights[k].guards_hold() && anchor[k].guards_hold() && operand[k].guards_hold())
        << "tensor " << k;
  }
  Tensor rows_of(size_t k) const {
    return rows.cpu().narrow(0, plan.tensors[k].first_row, plan.tensors[k].layout.rows);
  }

  std::vector<Buffer> weights, anchor, operand;
  Plan plan;
  Tensor report, rows, min, max;

 private:
  Limits limits(const Tensor& radii, const Tensor& closest = {}) {
    kept_ = radii.to(device_);
    kept_closest_ = closest.defined() ? closest.to(device_) : closest;
    return {kept_.data_ptr<double>(), closest.defined() ? kept_closest_.data_ptr<double>() : nullptr};
  }
  template <class T>
  Tensor on_device(const std::vector<T>& values) const {
    auto bytes = torch::empty({static_cast<int64_t>(values.size() * sizeof(T))}, torch::kByte);
    std::memcpy(bytes.data_ptr(), values.data(), values.size() * sizeof(T));
    return bytes.to(device_);
  }
  torch::Device device_;
  Split split_;
  std::vector<Operands> operands_;
  Tensor device_tensors_, device_pieces_, partials_, tickets_, row_dots_, result_, kept_, kept_closest_;
};

}  // namespace tpgm::kernels

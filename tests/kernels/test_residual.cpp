// A transformer's passes: the CPU's against LibTorch, CUDA's against the CPU's.
#include "tpgm/kernels/residual.h"

#include "tests/kernels/call.h"

namespace tpgm::kernels::test_residual {
namespace {

// Tensors on the CPU; what is not there is undefined.
struct NormInputs {
  Tensor x, branch, bias, weight, shift, d_normed, d_sum;
  double eps = 1e-6;
};

using Tensors = std::vector<Tensor>;

const ResidualBackend& backend_on(torch::Device device) {
  return device.is_cuda() ? residual_cuda() : residual_cpu();
}

DType dtype_of(const Tensor& tensor) {
  return tensor.scalar_type() == torch::kDouble     ? DType::kFloat64
         : tensor.scalar_type() == torch::kBFloat16 ? DType::kBFloat16
                                                    : DType::kFloat32;
}

torch::ScalarType sum_type(torch::ScalarType type) { return type == torch::kDouble ? type : torch::kFloat; }

// Copies inputs to a device and collects outputs from it, which start as NaN between guards.
class Memory {
 public:
  explicit Memory(torch::Device device) : device_(device) {}
  const void* in(const Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    inputs_.push_back(tensor.to(device_));
    return inputs_.back().data_ptr();
  }
  void* out(at::IntArrayRef sizes, torch::ScalarType type) {
    outputs_.emplace_back(torch::full(sizes, NAN, type), 0, device_);
    return outputs_.back().view.data_ptr();
  }
  void* scratch(int64_t bytes) {
    inputs_.push_back(torch::full({bytes / 4 + 1}, NAN, torch::TensorOptions(torch::kFloat).device(device_)));
    return inputs_.back().data_ptr();
  }
  Tensors results() const {
    Tensors results;
    for (const auto& output : outputs_) {
      EXPECT_TRUE(output.guards_hold());
      results.push_back(output.view.cpu());
    }
    return results;
  }

 private:
  torch::Device device_;
  Tensors inputs_;
  std::vector<Buffer> outputs_;
};

// sum (x without a branch), normed, dx, d_branch, d_weight, d_shift, d_bias.
Tensors norm_on(torch::Device device, const NormInputs& inputs) {
  const auto type = inputs.x.scalar_type(), branches = inputs.d_normed.scalar_type();
  const StreamTypes types{dtype_of(inputs.x), dtype_of(inputs.d_normed)};
  const int64_t rows = inputs.x.size(0), cols = inputs.x.size(1);
  Memory memory(device);
  AddLayerNorm forward;
  forward.types = types;
  forward.rows = rows, forward.cols = cols, forward.eps = inputs.eps;
  forward.x = memory.in(inputs.x);
  forward.branch = memory.in(inputs.branch);
  forward.bias = memory.in(inputs.bias);
  forward.weight = memory.in(inputs.weight);
  forward.shift = memory.in(inputs.shift);
  if (inputs.branch.defined()) forward.sum = memory.out({rows, cols}, type);
  forward.normed = memory.out({rows, cols}, branches);
  forward.mean = memory.out({rows}, type);
  forward.rstd = memory.out({rows}, type);
  backend_on(device).add_layer_norm(forward, nullptr);

  AddLayerNormBackward backward;
  backward.types = types;
  backward.rows = rows, backward.cols = cols;
  backward.d_normed = memory.in(inputs.d_normed);
  backward.d_sum = memory.in(inputs.d_sum);
  backward.sum = inputs.branch.defined() ? forward.sum : forward.x;
  backward.mean = forward.mean, backward.rstd = forward.rstd, backward.weight = forward.weight;
  backward.dx = memory.out({rows, cols}, type);
  backward.d_branch = memory.out({rows, cols}, branches);
  backward.d_weight = memory.out({cols}, type);
  backward.d_shift = memory.out({cols}, type);
  backward.d_bias = memory.out({cols}, type);
  const auto& backend = backend_on(device);
  backend.add_layer_norm_backward(backward, memory.scratch(backend.scratch_bytes(cols, 3)), nullptr);

  Tensors results = memory.results();
  if (!inputs.branch.defined()) results.insert(results.begin(), inputs.x);
  results.erase(results.begin() + 2, results.begin() + 4);
  return results;
}

// The same by LibTorch, in double.
Tensors norm_in_aten(const NormInputs& inputs) {
  const auto wide = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.to(torch::kDouble) : tensor;
  };
  Tensor sum = wide(inputs.x);
  if (inputs.branch.defined()) sum = sum + wide(inputs.branch);
  if (inputs.bias.defined()) sum = sum + wide(inputs.bias);
  sum = sum.detach().requires_grad_();
  const Tensor weight = wide(inputs.weight).detach().requires_grad_();
  const Tensor shift = wide(inputs.shift).detach().requires_grad_();
  const Tensor normed = at::layer_norm(sum, {sum.size(1)}, weight, shift, inputs.eps);
  const auto grads = torch::autograd::grad({normed}, {sum, weight, shift}, {wide(inputs.d_normed)});
  const Tensor dx = inputs.d_sum.defined() ? grads[0] + wide(inputs.d_sum) : grads[0];
  return {sum.detach(), normed.detach(), dx, dx, grads[1], grads[2], dx.sum(0)};
}

// What = 0: a branch with a bias, and a gradient of the sum; 1: a branch alone; 2: neither, with that
// gradient.
NormInputs random_norm(int64_t rows, int64_t cols, torch::ScalarType type, torch::ScalarType branches,
                       int what) {
  const auto make = [&](at::IntArrayRef sizes, torch::ScalarType to) {
    return torch::randn(sizes, torch::kDouble).to(to);
  };
  NormInputs inputs;
  inputs.x = make({rows, cols}, type) * 2 + 0.5;
  if (what < 2) inputs.branch = make({rows, cols}, branches);
  if (what < 1) inputs.bias = make({cols}, type);
  inputs.weight = make({cols}, type);
  inputs.shift = make({cols}, type);
  inputs.d_normed = make({rows, cols}, branches);
  if (what != 1) inputs.d_sum = make({rows, cols}, type);
  inputs.eps = cols < 16 ? 1e-2 : 1e-6;  // in a narrow row the variance may be nearly zero
  return inputs;
}

// Relative to the largest value, with a limit for fp32 and one for bf16.
void expect_close(const Tensors& actual, const Tensors& expected, const std::string& where,
                  double single = 2e-5, double half = 5e-3) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto a = actual[i].to(torch::kDouble), b = expected[i].to(torch::kDouble);
    const double limit = actual[i].scalar_type() == torch::kDouble  ? 1e-11
                         : actual[i].scalar_type() == torch::kFloat ? single
                                                                    : half;
    ASSERT_LE((a - b).abs().max().item<double>(), limit * std::max(1e-3, b.abs().max().item<double>()))
        << where << ", result " << i;
  }
}

std::string shape(int64_t rows, int64_t cols) { return std::to_string(rows) + " x " + std::to_string(cols); }

// The result, its gradient and the gradient's column sums.
Tensors activate_on(torch::Device device, Unit unit, const Tensor& x, const Tensor& dy) {
  Memory memory(device);
  Activate args;
  args.dtype = dtype_of(x);
  args.unit = unit;
  args.rows = x.size(0), args.cols = x.size(1);
  args.x = memory.in(x);
  args.y = memory.out(x.sizes(), x.scalar_type());
  const auto& backend = backend_on(device);
  backend.activate(args, nullptr);
  args.dy = memory.in(dy);
  args.y = memory.out(x.sizes(), x.scalar_type());
  args.d_bias = memory.out({x.size(1)}, sum_type(x.scalar_type()));
  backend.activate_backward(args, memory.scratch(backend.scratch_bytes(args.cols, 1)), nullptr);
  return memory.results();
}

Tensors activate_in_aten(Unit unit, const Tensor& narrow, const Tensor& dy) {
  const Tensor x = narrow.to(torch::kDouble).requires_grad_();
  const Tensor y = unit == Unit::kGelu ? at::gelu(x) : x * at::sigmoid(1.702 * x);
  const auto dx = torch::autograd::grad({y}, {x}, {dy.to(torch::kDouble)})[0];
  return {y.detach(), dx, dx.sum(0)};
}

// The column sums of the parts of `packed` [rows, parts · cols], which are views of it, and the parts copied
// beside each other again.
std::vector<Tensor> column_sums_on(torch::Device device, const Tensor& packed, int parts) {
  Memory memory(device);
  ColumnSums args;
  args.dtype = dtype_of(packed);
  args.rows = packed.size(0), args.cols = packed.size(1) / parts;
  args.parts = parts;
  const auto* first = static_cast<const char*>(memory.in(packed));
  for (int i = 0; i < parts; ++i) {
    args.from[i] = first + i * args.cols * packed.element_size();
    args.stride[i] = packed.size(1);
  }
  args.sums = memory.out({packed.size(1)}, sum_type(packed.scalar_type()));
  args.beside = memory.out(packed.sizes(), packed.scalar_type());
  const auto& backend = backend_on(device);
  backend.column_sums(args, memory.scratch(backend.scratch_bytes(args.cols, parts)), nullptr);
  return memory.results();
}

const std::vector<std::pair<torch::ScalarType, torch::ScalarType>> kStreams{
    {torch::kDouble, torch::kDouble}, {torch::kFloat, torch::kFloat}, {torch::kFloat, torch::kBFloat16}};

TEST(Residual, AgreesWithLibTorch) {
  torch::manual_seed(1);
  for (const auto& [type, branches] : kStreams) {
    for (const auto& [rows, cols] :
         std::vector<std::pair<int, int>>{{1, 1}, {1, 7}, {2, 33}, {17, 8}, {40, 96}}) {
      for (const int what : {0, 1, 2}) {
        const auto inputs = random_norm(rows, cols, type, branches, what);
        expect_close(norm_on(torch::kCPU, inputs), norm_in_aten(inputs), shape(rows, cols));
      }
      const Tensor x = 2 * torch::randn({rows, cols}, torch::kDouble).to(branches);
      const Tensor dy = torch::randn_like(x);
      for (const auto unit : {Unit::kGelu, Unit::kQuickGelu})
        expect_close(activate_on(torch::kCPU, unit, x, dy), activate_in_aten(unit, x, dy), shape(rows, cols));
      const Tensor packed = torch::randn({rows, 3 * cols}, torch::kDouble).to(branches);
      for (const int parts : {1, 3}) {
        const auto results = column_sums_on(torch::kCPU, packed, parts);
        expect_close({results[0]}, {packed.to(torch::kDouble).sum(0)}, shape(rows, cols));
        EXPECT_TRUE(results[1].equal(packed)) << shape(rows, cols);
      }
      if (HasFailure()) return;
    }
  }
}

class ResidualCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
    torch::manual_seed(2);
  }
};

TEST_F(ResidualCuda, AgreesWithTheCpu) {
  std::mt19937 random(4);
  std::vector<std::pair<int, int>> shapes{{1, 8},     {1, 2048},  {5, 768},   {300, 768}, {1000, 1024},
                                          {700, 192}, {333, 384}, {65, 1280}, {97, 1664}, {0, 64}};
  for (int i = 0; i < 12; ++i) shapes.emplace_back(1 + random() % 2000, 8 * (1 + random() % 256));
  for (const auto branches : {torch::kFloat, torch::kBFloat16}) {
    for (const auto& [rows, cols] : shapes) {
      if (rows > 0) {
        for (const int what : {0, 1, 2}) {
          const auto inputs = random_norm(rows, cols, torch::kFloat, branches, what);
          const auto results = norm_on(torch::kCUDA, inputs);
          expect_close(results, norm_on(torch::kCPU, inputs), shape(rows, cols), 1e-4);
          const auto again = norm_on(torch::kCUDA, inputs);
          for (size_t k = 0; k < results.size(); ++k) EXPECT_TRUE(results[k].equal(again[k])) << k;
        }
        const Tensor x = (2 * torch::randn({rows, cols})).to(branches), dy = torch::randn_like(x);
        for (const auto unit : {Unit::kGelu, Unit::kQuickGelu}) {
          expect_close(activate_on(torch::kCUDA, unit, x, dy), activate_on(torch::kCPU, unit, x, dy),
                       shape(rows, cols), 1e-4);
        }
      }
      const Tensor packed = torch::randn({rows, 3 * cols}).to(branches);
      for (const int parts : {1, 3}) {
        const auto results = column_sums_on(torch::kCUDA, packed, parts);
        expect_close({results[0]}, {column_sums_on(torch::kCPU, packed, parts)[0]}, shape(rows, cols), 1e-4);
        EXPECT_TRUE(results[1].equal(packed)) << shape(rows, cols);
      }
      if (HasFailure()) return;
    }
  }
}

// The fast Φ may be off by a rounding of bf16, and by no more, wherever Φ itself is not a denormal number.
TEST_F(ResidualCuda, RoundsGeluOfEveryBf16) {
  Tensor every =
      torch::arange(-32768, 32768, torch::kInt).to(torch::kShort).view(torch::kBFloat16).view({1, -1});
  every = torch::where(every.abs() < 12, every, torch::zeros_like(every));
  const Tensor dy = torch::ones_like(every);
  for (const auto unit : {Unit::kGelu, Unit::kQuickGelu}) {
    const auto fast = activate_on(torch::kCUDA, unit, every, dy),
               exact = activate_on(torch::kCPU, unit, every, dy);
    for (const int k : {0, 1}) {
      const auto a = fast[k].to(torch::kDouble), b = exact[k].to(torch::kDouble);
      // The derivative passes through zero. Near it, only an error relative to its terms can be bounded.
      const double floor = k == 0 ? 1e-37 : 1e-4;
      EXPECT_LE(((a - b).abs() / b.abs().clamp_min(floor)).max().item<double>(), 1.01 / 128) << k;
    }
  }
}

}  // namespace
}  // namespace tpgm::kernels::test_residual

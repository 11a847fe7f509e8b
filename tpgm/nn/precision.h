// Mixed precision (autocast) and memory formats (channels-last).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <unordered_map>
#include <vector>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace tpgm {

struct AutocastState {
  c10::DeviceType device = c10::DeviceType::CPU;
  bool enabled = false;
  c10::ScalarType dtype = c10::ScalarType::BFloat16;
  bool cached = true;  // cast each weight once, not at each use

  /// The state of this thread.
  static AutocastState current(c10::DeviceType device);
  /// For code that runs first without an autograd graph and then with one (recompute.h): the second run must
  /// not reuse cached casts of the first, which have no graph.
  AutocastState without_cache() const;
};

/// torch.autocast for C++: while an object lives, GEMMs and convolutions compute in `dtype`, and operations
/// that need range or precision in fp32. Parameters stay fp32; optimizers and methods work on these master
/// weights. As in Python, destroy it before backward().
class Autocast {
 public:
  explicit Autocast(c10::DeviceType device, c10::ScalarType dtype = c10::ScalarType::BFloat16);
  explicit Autocast(const AutocastState& state);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  AutocastState before_;
};

/// `tensor` cast as autocast casts the operands of a GEMM; itself without autocast.
at::Tensor autocasted(const at::Tensor& tensor);

/// The values of `tensor` in `type`, for autograd functions that compute its gradient themselves.
at::Tensor value_in(c10::ScalarType type, const at::Tensor& tensor);

/// Casts these weights together, in one or two launches, and casts their gradients back together. While an
/// object lives, autocasted() returns the cast weights in this thread, and value_in() the cast biases.
/// Autocast itself launches two kernels per weight, each of which takes as long as the smallest convolutions
/// of a model. It does nothing on the CPU or without autocast.
class CastWeights {
 public:
  explicit CastWeights(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases = {});
  ~CastWeights();
  CastWeights(const CastWeights&) = delete;
  CastWeights& operator=(const CastWeights&) = delete;

 private:
  using Casts = std::unordered_map<const at::TensorImpl*, at::Tensor>;
  friend at::Tensor autocasted(const at::Tensor& tensor);
  friend at::Tensor value_in(c10::ScalarType type, const at::Tensor& tensor);
  static void cast(const std::vector<at::Tensor>& tensors, Casts& casts);

  Casts casts_, values_;
  const CastWeights* before_;
};

/// Changes the weights of convolutions to channels-last (NHWC) in place; parameters keep their identity. With
/// images in the same format (images.contiguous(at::MemoryFormat::ChannelsLast)), all activations are
/// channels-last. Call it before an anchor is taken.
void to_channels_last(torch::nn::Module& module);

}  // namespace tpgm

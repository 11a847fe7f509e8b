// Mixed precision and memory formats: what to compute in, and how images lie in memory.
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

  /// Of this thread.
  static AutocastState current(c10::DeviceType device);
  /// For a part that runs without a graph first and with one later: a cached cast would have none.
  AutocastState without_cache() const;
};

/// While it lives, matrix products and convolutions compute in `dtype` (bf16 by default) and what needs the
/// range or the digits in fp32, as torch.autocast chooses. Parameters stay fp32: they are the masters that
/// the optimizer and every method work on. End it before backward(), as in Python.
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

/// `tensor` as autocast gives it to a matrix product; itself without autocast.
at::Tensor autocasted(const at::Tensor& tensor);

/// The values of `tensor` in `type`, for an autograd function that has the gradient in a type of its own.
at::Tensor value_in(c10::ScalarType type, const at::Tensor& tensor);

/// While it lives, autocasted() gives this thread copies of these weights that were cast together, in a
/// launch or two, and so are their gradients on the way back; value_in() gives it copies of the biases.
/// Autocast by itself takes two launches for each, which in a large model are as long as the smallest of its
/// convolutions. Does nothing on the CPU or without autocast.
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

/// Lays out the weights of convolutions as NHWC, in place; parameters keep their identity. Give the model
/// images in the same format (images.contiguous(at::MemoryFormat::ChannelsLast)) and everything between stays
/// in it. Do this before an anchor is taken.
void to_channels_last(torch::nn::Module& module);

}  // namespace tpgm

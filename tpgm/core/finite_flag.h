// Notices NaN and Inf without waiting for the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpgm {

/// A number on the device in which kernels note what they found not to be finite (kernels/finite_code.h), and
/// its way to an error on the host.
///
/// On the CPU check() costs nothing, and follows every call. On CUDA nothing waits: the flag turns all later
/// writes into no-ops, and the error comes from the first poll() after a post() has reached the host, or from
/// check(), which waits for the device. After the error the flag is clear. While capturing() is true,
/// check(), poll() and post() do nothing: they belong outside of a captured step.
class FiniteFlag {
 public:
  /// `owner` begins the messages; `names` are those of the tensors that codes speak of.
  FiniteFlag(std::string owner, const std::vector<std::string>& names, at::Device device);

  /// The number, kernels::kAllFinite while it is clear; it stays in its memory.
  const at::Tensor& report() const { return report_; }

  /// Counts a loss that is not finite like a NaN in the weights. On the CPU it throws at once.
  void expect_finite(const at::Tensor& loss);

  /// Throws if something was not finite; waits for the device.
  void check();
  /// check() on the CPU; on CUDA the error comes later.
  void check_on_cpu();
  /// Starts the flag's way to the host.
  void post();
  /// Throws if a flag that was posted has arrived, and is not clear.
  void poll();

 private:
  [[noreturn]] void raise(int32_t code);

  std::string owner_;
  std::vector<std::string> names_;
  at::Tensor report_, host_report_;
  std::optional<c10::Event> posted_;
};

}  // namespace tpgm

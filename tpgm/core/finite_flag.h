// Detects NaN and Inf without synchronizing with the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpgm {

/// A number on the device in which kernels report NaN and Inf (kernels/finite_code.h), and which becomes an
/// error on the host.
///
/// On the CPU check() costs nothing, so it follows every call. On CUDA nothing waits: once the flag is set,
/// kernels write nothing any more, and the error comes from the first poll() after a post() has reached the
/// host, or from check(), which waits for the device. Throwing clears the flag. During capture (see
/// capturing()), check(), poll() and post() do nothing: call them outside of a captured step.
class FiniteFlag {
 public:
  /// Messages begin with [owner]. `names` are the names of the tensors, by the index in a code.
  FiniteFlag(std::string owner, const std::vector<std::string>& names, at::Device device);

  /// The number: kernels::kAllFinite while the flag is clear. Its memory does not move.
  const at::Tensor& report() const { return report_; }

  /// Sets the flag if the loss is not finite. On the CPU it throws at once.
  void expect_finite(const at::Tensor& loss);

  /// Throws if the flag is set. Waits for the device.
  void check();
  /// check() on the CPU; does nothing on CUDA, where the error comes later.
  void check_on_cpu();
  /// Starts an asynchronous copy of the flag to the host.
  void post();
  /// Throws if a posted copy has arrived and is set. Does not wait.
  void poll();

 private:
  [[noreturn]] void raise(int32_t code);

  std::string owner_;
  std::vector<std::string> names_;
  at::Tensor report_, host_report_;
  std::optional<c10::Event> posted_;
};

}  // namespace tpgm

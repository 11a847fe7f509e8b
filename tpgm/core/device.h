// Devices by the names that people give them.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "tpgm/base/text.h"

namespace tpgm {

/// "auto" (none), "cpu", "cuda" (the first) and "cuda:N".
template <>
struct TextOf<std::optional<c10::Device>> {
  static std::string type();
  static std::string write(const std::optional<c10::Device>& device);
  static bool read(const std::string& text, std::optional<c10::Device>& device);
};

/// The one that was asked for; none: the first CUDA device if there is one, else the CPU. Throws for a device
/// that is not there.
c10::Device find_device(const std::optional<c10::Device>& wanted);
/// The same of a text.
c10::Device find_device(const std::string& text);

}  // namespace tpgm

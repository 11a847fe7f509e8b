// Devices from text: "cpu", "cuda:1", "auto".
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "tpgm/base/text.h"

namespace tpgm {

/// "auto" (no value), "cpu", "cuda" (the first one) and "cuda:N".
template <>
struct TextOf<std::optional<c10::Device>> {
  static std::string type();
  static std::string write(const std::optional<c10::Device>& device);
  static bool read(const std::string& text, std::optional<c10::Device>& device);
};

/// The wanted device; by default the first CUDA device if there is one, else the CPU. Throws if the device
/// does not exist.
c10::Device find_device(const std::optional<c10::Device>& wanted);
/// find_device() of parsed text.
c10::Device find_device(const std::string& text);

}  // namespace tpgm

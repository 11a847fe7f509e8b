#include "tpgm/core/device.h"

#include <c10/util/Exception.h>
#include <torch/cuda.h>

namespace tpgm {

using Text = TextOf<std::optional<c10::Device>>;

std::string Text::type() { return "auto, cpu, cuda or cuda:N"; }

std::string Text::write(const std::optional<c10::Device>& device) { return device ? device->str() : "auto"; }

bool Text::read(const std::string& text, std::optional<c10::Device>& device) {
  device.reset();
  if (text == "auto") return true;
  if (text == "cpu") device = c10::Device(c10::kCPU);
  if (device) return true;
  const std::string name = text == "cuda" ? "cuda:0" : text;
  try {
    device = c10::Device(name);
  } catch (const c10::Error&) {  // the caller reports what is expected
    return false;
  }
  return device->is_cuda() && device->str() == name;  // LibTorch reads cuda:256 as cuda:0
}

c10::Device find_device(const std::optional<c10::Device>& wanted) {
  const bool there = torch::cuda::is_available();
  const c10::Device device = wanted.value_or(there ? c10::Device("cuda:0") : c10::Device(c10::kCPU));
  if (device.is_cpu()) return device;
  TORCH_CHECK(there, "[find_device] `device` cuda",
              ": no CUDA device is visible, or this LibTorch was built without CUDA");
  TORCH_CHECK(device.index() < static_cast<int>(torch::cuda::device_count()), "[find_device] `device` ",
              device.str(), ": there are ", torch::cuda::device_count(), " devices");
  return device;
}

c10::Device find_device(const std::string& text) {
  std::optional<c10::Device> wanted;
  from_text("[find_device] `device`", text, wanted);
  return find_device(wanted);
}

}  // namespace tpgm

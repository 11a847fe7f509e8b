// Which devices a command may be given.
#include <c10/core/Device.h>
#include <torch/cuda.h>

#include "tools/command.h"

namespace tpgm::tools {

void check_device(const char* command, const std::string& device) {
  const bool cuda = device == "cuda" || device.starts_with("cuda:");
  if (device != "cpu" && !cuda) throw UsageError("--device " + device + ": expected cpu, cuda or cuda:N");
  if (!cuda) return;
  TORCH_CHECK(torch::cuda::is_available(), "[", command, "] --device ", device,
              ": no CUDA device is visible, or this LibTorch was built without CUDA");
  c10::Device parsed(c10::DeviceType::CUDA);
  try {
    parsed = c10::Device(device);
  } catch (const c10::Error&) {
    throw UsageError("--device " + device + ": expected cpu, cuda or cuda:N");
  }
  TORCH_CHECK(parsed.index() < static_cast<int>(torch::cuda::device_count()), "[", command, "] --device ",
              device, ": there are ", torch::cuda::device_count(), " devices");
}

}  // namespace tpgm::tools

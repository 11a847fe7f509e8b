// What tests share: the devices to run on, and errors as text.
#pragma once

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <vector>

namespace tpgm::testing {

/// A fixture for tests that run on every device: instantiate with TPGM_ON_EVERY_DEVICE(Suite). The CUDA
/// instances carry "Cuda" in their names and skip themselves where there is no GPU.
class OnDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !torch::cuda::is_available()) {
      GTEST_SKIP() << "no CUDA device";
    }
    torch::manual_seed(0);
  }
  torch::Device device() const { return torch::Device(std::string(GetParam()) == "Cuda" ? "cuda" : "cpu"); }
};

#define TPGM_ON_EVERY_DEVICE(Suite)                                       \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, ::testing::Values("Cpu", "Cuda"), \
                           [](const auto& info) { return std::string(info.param); })

/// What `call` throws, as text; fails if it does not throw a c10::Error.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

}  // namespace tpgm::testing

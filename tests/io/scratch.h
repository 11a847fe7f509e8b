// What the tests of tpgm/io share: a folder that goes away, bytes of files, and equality of tensors bit by
// bit.
#pragma once

#include <ftw.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tpgm::test {

/// With all that is in it. LibTorch 2.11 brings a std::filesystem::remove_all of its own, which crashes.
inline void remove_folder(const std::filesystem::path& folder) {
  ::nftw(
      folder.c_str(), [](const char* path, const struct stat*, int, FTW*) { return ::remove(path); }, 16,
      FTW_DEPTH | FTW_PHYS);
}

class Scratch : public ::testing::Test {
 protected:
  Scratch() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("tpgm-" + std::string(info->name()) + "-" + std::to_string(::getpid()));
    remove_folder(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Scratch() override { remove_folder(folder_); }

  std::filesystem::path file(const std::string& name) const { return folder_ / name; }
  size_t files_in_folder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A line of /proc/self/status in KiB: "VmRSS", "VmHWM".
inline int64_t status_kib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t value = 0;
    if (word == field + ":" && status >> value) return value;
  }
  return 0;
}

/// Same dtype, shape and bits (so that NaN equals NaN, and -0 does not equal 0).
inline ::testing::AssertionResult same(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) {
    return ::testing::AssertionFailure() << a.scalar_type() << " against " << b.scalar_type();
  }
  if (a.sizes() != b.sizes()) return ::testing::AssertionFailure() << a.sizes() << " against " << b.sizes();
  const at::Tensor x = a.detach().cpu().resolve_conj().contiguous(),
                   y = b.detach().cpu().resolve_conj().contiguous();
  if (x.nbytes() > 0 && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) != 0) {
    return ::testing::AssertionFailure() << "different values";
  }
  return ::testing::AssertionSuccess();
}

/// The message of the c10::Error that `action` throws; fails when it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace tpgm::test

// What the tests of tpgm/checkpoints share: tensors of every type, checkpoints made of them, a disk that is
// full.
#pragma once

#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "../io/scratch.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/io/hash.h"
#include "tpgm/io/safetensors.h"

namespace tpgm::test {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TPGM_TEST_DATA) / "io" / "goldens" / name;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Normally distributed; integers are from -100 (0, if unsigned) to 100.
inline at::Tensor random_tensor(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  if (at::isComplexType(dtype)) return at::randn(shape, dtype);
  if (at::isFloatingType(dtype)) return at::randn(shape, at::kDouble).to(dtype);
  if (dtype == at::kBool) return at::rand(shape) > 0.5;
  return at::randint(c10::isSignedType(dtype) ? -100 : 0, 101, shape, at::kLong).to(dtype);
}

/// Random bits of the type, NaNs and all.
inline at::Tensor random_bits(at::IntArrayRef shape, at::ScalarType dtype) {
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
  return at::randint(0, dtype == at::kBool ? 2 : 256, {bytes}, at::kByte).view(dtype).reshape(shape);
}

/// In double; complex numbers as pairs.
inline at::Tensor in_double(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.to(at::kComplexDouble)) : tensor.to(at::kDouble);
}

/// A folder with checkpoints in it; random numbers that are the same at each run.
class Checkpoints : public Scratch {
 protected:
  Checkpoints() { torch::manual_seed(0); }
  ~Checkpoints() override { at::set_num_threads(threads_); }
  void SetUp() override {
    try {
      Fingerprint();
    } catch (const c10::Error& error) {
      GTEST_SKIP() << error.what_without_backtrace();
    }
  }

  Checkpoint save(const std::string& name, const NamedTensors& tensors, const Metadata& metadata = {}) const {
    std::filesystem::create_directories(file(name).parent_path());
    save_safetensors(tensors, file(name), metadata);
    return Checkpoint(file(name));
  }
  NamedTensors load(const std::string& name) const { return SafetensorsFile(file(name)).tensors(); }
  std::string bytes(const std::string& name) const { return read_bytes(file(name)); }
  bool exists(const std::string& name) const { return std::filesystem::exists(file(name)); }

 private:
  int threads_ = at::get_num_threads();
};

/// The same names, types, shapes and bits.
inline void expect_same(const NamedTensors& actual, const NamedTensors& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  for (const auto& item : expected) {
    const at::Tensor* found = actual.find(item.key());
    ASSERT_NE(found, nullptr) << item.key();
    EXPECT_TRUE(same(*found, item.value())) << item.key();
  }
}

/// While it lives, no file may become larger: stands in for the end of the disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*handler_)(int);
};

}  // namespace tpgm::test

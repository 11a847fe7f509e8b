// What threads do with files: they write tensors into one checkpoint, and read the inputs of a merge in the background.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "tests/io/scratch.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/io/safetensors_writer.h"

namespace tpgm {
namespace {

class FileThreads : public test::Scratch {};

// The threads write pieces of the same tensors, as merging and converting do.
std::filesystem::path write_from_threads(const std::filesystem::path& file) {
  constexpr int64_t kNumbers = 1 << 16, kPiece = 1 << 12;
  std::vector<float> numbers(kNumbers);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  SafetensorsWriter writer(file, {{"a", at::kFloat, {kNumbers}}, {"b", at::kFloat, {kNumbers}}}, {});
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int64_t at = kPiece * next++; at < 2 * kNumbers; at = kPiece * next++) {
        const int64_t begin = at % kNumbers;
        writer.write(static_cast<size_t>(at / kNumbers), begin * sizeof(float), &numbers[begin],
                     kPiece * sizeof(float));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  writer.commit();
  return file;
}

TEST_F(FileThreads, WriteOneCheckpoint) {
  const auto file = write_from_threads(folder_ / "a.safetensors");
  for (const auto& item : SafetensorsFile(file).tensors()) {
    EXPECT_EQ(item.value()[0].item<float>(), 0) << item.key();
    EXPECT_EQ(item.value()[-1].item<float>(), item.value().numel() - 1) << item.key();
  }
}

TEST_F(FileThreads, FingerprintInputsInTheBackground) {
  const auto first = write_from_threads(folder_ / "a.safetensors");
  const auto second = write_from_threads(folder_ / "b.safetensors");
  const Checkpoint a(first), b(second);
  Provenance provenance({&a, &b});
  const std::string before = keys::kInputs.of(provenance.metadata());
  provenance.start();
  EXPECT_EQ(keys::kInputs.of(provenance.metadata()),
            before);  // a merge reads the metadata and the tensors meanwhile
  EXPECT_EQ(a.tensor("a").numel(), b.tensor("a").numel());
  EXPECT_NE(keys::kInputs.of(provenance.wait()), before);
}

TEST_F(FileThreads, StopToFingerprintAtTheEnd) {
  const Checkpoint a(write_from_threads(folder_ / "a.safetensors"));
  for (int i = 0; i < 20; ++i) {
    Provenance provenance({&a});
    provenance.start();
  }
}

}  // namespace
}  // namespace tpgm

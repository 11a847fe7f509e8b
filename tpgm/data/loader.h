// Loads batches of images: worker threads decode ahead, and batches are the same in every run.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/arg.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tpgm/data/split.h"
#include "tpgm/data/transforms.h"

namespace tpgm {

enum class OnBadImage {
  kError,  // next() throws, naming the file
  kSkip,   // leaves the image out of its batch; see Loader::skipped()
};

template <>
struct Keywords<OnBadImage> {
  static constexpr std::pair<OnBadImage, const char*> all[] = {{OnBadImage::kError, "error"},
                                                               {OnBadImage::kSkip, "skip"}};
};

/// How an image becomes the model's input: random for training, always the same for evaluation.
using View = std::variant<EvalViewOptions, TrainViewOptions>;

struct LoaderOptions {
  using Triple = std::array<double, 3>;
  TORCH_ARG(int64_t, batch_size) = 64;
  /// Number of threads. The batches do not depend on it.
  TORCH_ARG(int64_t, workers) = 2;
  /// How many batches may be ready or in preparation; this bounds the memory.
  TORCH_ARG(int64_t, queue) = 4;
  /// Shuffle the images anew in every epoch.
  TORCH_ARG(bool, shuffle) = false;
  /// Leave out the last batch of an epoch if it is not full.
  TORCH_ARG(bool, drop_last) = false;
  TORCH_ARG(uint64_t, seed) = 0;
  TORCH_ARG(c10::Device, device) = c10::Device(c10::kCPU);
  /// Normalization of pixels, which are in 0..1.
  TORCH_ARG(Triple, mean) = { 0.485, 0.456, 0.406 };
  TORCH_ARG(Triple, std) = { 0.229, 0.224, 0.225 };
  /// 3, or 1 for gray (Pillow's convert("L")), which is normalized with the average of `mean` and of `std`.
  TORCH_ARG(int64_t, channels) = 3;
  /// Bytes of decoded images to keep for the next epoch; 0: none. Images that do not fit are decoded every
  /// time. With a cache whole images are decoded, and Decode::kFast has no effect.
  TORCH_ARG(int64_t, cache) = 0;
  TORCH_ARG(OnBadImage, on_bad_image) = OnBadImage::kError;
  TORCH_ARG(int64_t, max_pixels) = kMaxPixels;
};

struct Batch {
  at::Tensor images;             ///< [n, channels, size, size], float32, channels-last, normalized
  at::Tensor labels;             ///< [n], int64; -1 for an image without a label
  std::vector<int64_t> indices;  ///< positions in the subset's samples
};

/// An image that could not be read.
struct BadImage {
  int64_t index;
  std::string place, reason;
};

/// A batch is a function of the seed, the epoch, its number, the subset, the view and the options that change
/// its content. The number of workers, the queue and the batches read before do not change it.
///
/// On CUDA the loader copies bytes from pinned memory on its own stream while the device computes, and
/// normalizes them on the device. The caller's current stream waits for the copy; the calling thread does
/// not.
///
/// All calls must come from one thread. The destructor waits for images that are being decoded.
class Loader {
 public:
  /// Throws for options out of range and for an empty subset.
  Loader(SampleSubset subset, View view, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Number of batches in an epoch.
  int64_t batches() const;
  /// Begins an epoch at `first_batch`, without reading the batches before it. An epoch that is under way
  /// ends.
  void start(int64_t epoch, int64_t first_batch = 0);
  /// The next batch; nothing at the end of the epoch. Throws the error of the first bad image in the batch,
  /// which ends the epoch.
  std::optional<Batch> next();

  /// The images left out so far, each once, in the order in which the loader met them.
  const std::vector<BadImage>& skipped() const;
  const SampleSubset& subset() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm

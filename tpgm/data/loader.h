// Batches of images, made by threads ahead of time, the same on every run.
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
  kSkip,   // the batch has one image less; see Loader::skipped()
};

template <>
struct Words<OnBadImage> {
  static constexpr std::pair<OnBadImage, const char*> all[] = {{OnBadImage::kError, "error"},
                                                               {OnBadImage::kSkip, "skip"}};
};

/// Training images change from epoch to epoch; all others are the same each time.
using View = std::variant<EvalViewOptions, TrainViewOptions>;

struct LoaderOptions {
  using Triple = std::array<double, 3>;
  TORCH_ARG(int64_t, batch_size) = 64;
  /// Threads. They change how fast batches come, and nothing else.
  TORCH_ARG(int64_t, workers) = 2;
  /// Batches that may be ready or in the making; memory is bounded by them, whatever the number of images.
  TORCH_ARG(int64_t, queue) = 4;
  /// A new order every epoch.
  TORCH_ARG(bool, shuffle) = false;
  /// Leave out a last batch that is not full.
  TORCH_ARG(bool, drop_last) = false;
  TORCH_ARG(uint64_t, seed) = 0;
  TORCH_ARG(c10::Device, device) = c10::Device(c10::kCPU);
  /// Of pixels in 0..1.
  TORCH_ARG(Triple, mean) = { 0.485, 0.456, 0.406 };
  TORCH_ARG(Triple, std) = { 0.229, 0.224, 0.225 };
  /// 3, or 1 for grey as Pillow's convert("L") has it, with the means of `mean` and `std`.
  TORCH_ARG(int64_t, channels) = 3;
  /// Bytes of decoded images to keep for the next epoch; those that do not fit are decoded each time. With
  /// a cache images are decoded whole, so Decode::kFast has no effect.
  TORCH_ARG(int64_t, cache) = 0;
  TORCH_ARG(OnBadImage, on_bad_image) = OnBadImage::kError;
  TORCH_ARG(int64_t, max_pixels) = kMaxPixels;
};

struct Batch {
  at::Tensor images;             ///< [n, channels, size, size], float32, channels-last, normalised
  at::Tensor labels;             ///< [n], int64; -1 where there is none
  std::vector<int64_t> indices;  ///< positions in the subset's samples
};

/// An image that could not be read.
struct BadImage {
  int64_t index;
  std::string place, reason;
};

/// A batch is a function of (seed, epoch, number of the batch), the subset, the view and the options that say
/// what is in it: not of the workers, the queue, or what was read before.
///
/// On CUDA, bytes travel from pinned memory on a stream of their own while the device is busy, and become
/// numbers there; the current stream of the caller waits for them, the caller does not.
///
/// Calls come from one thread. Destruction waits for images that are being decoded.
class Loader {
 public:
  /// Throws for options that make no sense and for an empty subset.
  Loader(SampleSubset subset, View view, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Of an epoch.
  int64_t batches() const;
  /// Begins an epoch, at any batch of it: what comes before is not read. Ends the one that is under way.
  void start(int64_t epoch, int64_t first_batch = 0);
  /// The next batch; nothing at the end of the epoch. Throws the first error of the batch, by position in it;
  /// the epoch is over then.
  std::optional<Batch> next();

  /// Each bad image once, in the order they were met.
  const std::vector<BadImage>& skipped() const;
  const SampleSubset& subset() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm

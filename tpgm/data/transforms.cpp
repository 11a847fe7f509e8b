// Computes the crops of views, and decodes, resizes and augments them.
#include "tpgm/data/transforms.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace tpgm {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 26;  // that an image may be resized to: 0.2 GB

int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }  // to even, as Python

// The part of `image` at `box`, which may reach beyond it; black there.
Image cut(const Image& image, const Box& box) {
  if (box.left == 0 && box.top == 0 && box.width == image.width && box.height == image.height) return image;
  Image result(box.width, box.height, image.channels);
  const int64_t left = std::max<int64_t>(box.left, 0), top = std::max<int64_t>(box.top, 0);
  const int64_t right = std::min(box.left + box.width, image.width);
  const int64_t bottom = std::min(box.top + box.height, image.height);
  for (int64_t y = top; y < bottom && left < right; ++y) {
    std::copy(image.row(y) + left * image.channels, image.row(y) + right * image.channels,
              result.row(y - box.top) + (left - box.left) * image.channels);
  }
  return result;
}

void flip(Image& image) {
  using Pixel = std::array<uint8_t, 3>;
  for (int64_t y = 0; y < image.height; ++y) {
    auto* row = reinterpret_cast<Pixel*>(image.row(y));
    std::reverse(row, row + image.width);
  }
}

// The middle of an image of which the crop shows little, so that a strip of 1 x 100,000 pixels is not blown
// up to 224 x 22,400,000 first. Whole multiples of the shorter side keep the pixels where they were.
Box middle(int64_t width, int64_t height, int64_t blocks) {
  const auto keep = [&](int64_t length, int64_t side) -> std::pair<int64_t, int64_t> {
    const int64_t all = length / side;
    if (all <= 2 * blocks) return {0, length};
    const int64_t before = (all - blocks) / 2;
    return {before * side, length - 2 * before * side};
  };
  const int64_t side = std::min(width, height);
  const auto [left, new_width] = keep(width, side);
  const auto [top, new_height] = keep(height, side);
  return {left, top, new_width, new_height};
}

}  // namespace

Image eval_view(EncodedImage& encoded, const EvalViewOptions& options) {
  const int64_t size = options.image_size();
  TORCH_CHECK(size > 0 && size <= kMostPixels / size && options.crop_pct() >= 0.01 &&
                  options.crop_pct() <= static_cast<double>(size),
              "[eval_view] image_size ", size, " must be positive, its square at most ", kMostPixels,
              ", and crop_pct ", options.crop_pct(), " from 0.01 to it");
  const auto shorter = static_cast<int64_t>(static_cast<double>(size) / options.crop_pct());
  const Box box = middle(encoded.width(), encoded.height(), size / shorter + 8);
  const int64_t side = std::min(box.width, box.height);
  const int64_t width = box.width * shorter / side, height = box.height * shorter / side;
  TORCH_CHECK(width <= kMostPixels / height, "[eval_view] `image_size` ", size, " and `crop_pct` ",
              options.crop_pct(), " resize an image to ", width, " x ", height,
              " pixels; give a smaller `image_size` or a larger `crop_pct`");
  const bool whole = box.width == encoded.width() && box.height == encoded.height();
  const Image image = options.decode() == Decode::kFast ? encoded.decode_fast(box, width, height)
                      : whole                           ? encoded.decode()
                                                        : encoded.decode(box);
  const Image resized = resize(image, width, height, options.interpolation());
  const auto offset = [&](int64_t length) {  // of a crop that is larger, torchvision rounds the border down
    return length < size ? -((size - length) / 2) : rounded(static_cast<double>(length - size) / 2);
  };
  return cut(resized, {offset(width), offset(height), size, size});
}

Box random_crop(int64_t width, int64_t height, const TrainViewOptions& options, Random& random) {
  const auto [min_scale, max_scale] = options.scale();
  const auto [min_ratio, max_ratio] = options.ratio();
  TORCH_CHECK(0 < min_scale && min_scale <= max_scale && 0 < min_ratio && min_ratio <= max_ratio,
              "[random_crop] scale (", min_scale, ", ", max_scale, ") and ratio (", min_ratio, ", ",
              max_ratio, ") must be positive and in order");
  const auto w = static_cast<double>(width), h = static_cast<double>(height);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = w * h * random.uniform(min_scale, max_scale);
    const double ratio = std::exp(random.uniform(std::log(min_ratio), std::log(max_ratio)));
    const int64_t crop_width = rounded(std::sqrt(area * ratio)),
                  crop_height = rounded(std::sqrt(area / ratio));
    if (crop_width < 1 || crop_width > width || crop_height < 1 || crop_height > height) continue;
    return {random.integer(width - crop_width + 1), random.integer(height - crop_height + 1), crop_width,
            crop_height};
  }
  int64_t crop_width = width, crop_height = height;
  if (w / h < min_ratio) crop_height = std::max<int64_t>(rounded(w / min_ratio), 1);
  if (w / h > max_ratio) crop_width = std::max<int64_t>(rounded(h * max_ratio), 1);
  return {(width - crop_width) / 2, (height - crop_height) / 2, crop_width, crop_height};
}

Image train_view(EncodedImage& encoded, const TrainViewOptions& options, Random& random) {
  const int64_t size = options.image_size();
  TORCH_CHECK(size > 0 && size <= kMostPixels / size, "[train_view] image_size ", size,
              " must be positive, and its square at most ", kMostPixels);
  const Box box = random_crop(encoded.width(), encoded.height(), options, random);
  const Image part =
      options.decode() == Decode::kExact ? encoded.decode(box) : encoded.decode_fast(box, size, size);
  Image view = resize(part, size, size, options.interpolation());
  if (random.uniform() < options.hflip()) flip(view);
  random_affine(view, options.affine(), random);
  color_jitter(view, options.color_jitter(), random);
  rand_augment(view, options.rand_augment(), random);
  return view;
}

}  // namespace tpgm

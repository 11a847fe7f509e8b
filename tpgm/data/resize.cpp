// Resizes 8-bit images with the antialiased kernels of LibTorch.
#include "tpgm/data/resize.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>

namespace tpgm {

Image resize(const Image& image, int64_t width, int64_t height, Interpolation interpolation) {
  TORCH_CHECK(width > 0 && height > 0, "[resize] expected a size of at least 1 x 1, got ", width, " x ",
              height);
  if (image.width == width && image.height == height) return image;
  const c10::InferenceMode no_autograd;
  Image result(width, height, image.channels);
  const auto view = [](const Image& each) {
    return at::from_blob(const_cast<uint8_t*>(each.pixels.data()),
                         {1, each.height, each.width, each.channels}, at::TensorOptions(at::kByte))
        .permute({0, 3, 1, 2});
  };
  at::Tensor to = view(result);
  const at::Tensor from = view(image);
  if (interpolation == Interpolation::kBicubic) {
    at::_upsample_bicubic2d_aa_out(to, from, {height, width}, /*align_corners=*/false);
  } else {
    at::_upsample_bilinear2d_aa_out(to, from, {height, width}, /*align_corners=*/false);
  }
  return result;
}

}  // namespace tpgm

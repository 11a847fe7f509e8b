// Draws mixup and cutmix, and applies them to images and labels.
#include "tpgm/data/mix.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace tpgm {
namespace {

void check_smoothing(double smoothing) {
  TORCH_CHECK(smoothing >= 0 && smoothing < 1, "[Mix] smoothing is ", smoothing,
              "; choose from 0 to less than 1");
}

// A square in units of the image about a random point, as far as it is inside.
void draw_box(Mix& mix, int64_t height, int64_t width, Random& random) {
  const double side = std::sqrt(1 - mix.lambda);
  const auto draw = [&](int64_t size, int64_t& begin, int64_t& end) {
    const auto cut = static_cast<int64_t>(static_cast<double>(size) * side);
    const int64_t center = random.integer(size);
    begin = std::max<int64_t>(center - cut / 2, 0);
    end = std::min(center + (cut + 1) / 2, size);
  };
  draw(height, mix.top, mix.bottom);
  draw(width, mix.left, mix.right);
  const int64_t area = (mix.bottom - mix.top) * (mix.right - mix.left);
  mix.lambda = 1 - static_cast<double>(area) / static_cast<double>(height * width);
}

}  // namespace

void check_options(const MixOptions& options) {
  const auto check_alpha = [](const char* name, double alpha) {
    TORCH_CHECK(alpha >= 0 && std::isfinite(alpha), "[Mix] ", name, " is ", alpha,
                "; choose an alpha above 0, or 0 for none");
  };
  const auto check_probability = [](const char* name, double value) {
    TORCH_CHECK(value >= 0 && value <= 1, "[Mix] ", name, " is ", value, "; choose from 0 to 1");
  };
  check_alpha("mixup", options.mixup());
  check_alpha("cutmix", options.cutmix());
  check_probability("prob", options.prob());
  check_probability("switch_prob", options.switch_prob());
  check_smoothing(options.smoothing());
}

Mix draw_mix(const MixOptions& options, int64_t height, int64_t width, Random& random) {
  check_options(options);
  TORCH_CHECK(height > 0 && width > 0, "[draw_mix] images of ", height, " x ", width, "; they need pixels");
  const bool mixup = options.mixup() > 0, cutmix = options.cutmix() > 0;
  Mix mix;
  if ((!mixup && !cutmix) || random.uniform() >= options.prob()) return mix;
  mix.cutmix = cutmix && (!mixup || random.uniform() < options.switch_prob());
  const double alpha = mix.cutmix ? options.cutmix() : options.mixup();
  mix.lambda = random.beta(alpha, alpha);
  if (mix.cutmix) draw_box(mix, height, width, random);
  return mix;
}

at::Tensor mix_images(const at::Tensor& images, const Mix& mix) {
  TORCH_CHECK(images.dim() == 4, "[mix_images] images are ", images.sizes(),
              "; expected [batch, channels, height, width]");
  if (mix.lambda == 1) return images;
  if (!mix.cutmix) {
    TORCH_CHECK(images.is_floating_point(), "[mix_images] images are ", images.scalar_type(),
                "; mixup takes floats");
    return images.flip(0).lerp_(images, mix.lambda);
  }
  TORCH_CHECK(0 <= mix.top && mix.top <= mix.bottom && mix.bottom <= images.size(2) && 0 <= mix.left &&
                  mix.left <= mix.right && mix.right <= images.size(3),
              "[mix_images] the box, rows ", mix.top, " to ", mix.bottom, " and columns ", mix.left, " to ",
              mix.right, ", is not within images of ", images.sizes(), "; draw it for their size");
  const auto box = [&](const at::Tensor& all) {
    return all.slice(2, mix.top, mix.bottom).slice(3, mix.left, mix.right);
  };
  at::Tensor mixed = images.clone();
  box(mixed).copy_(box(images).flip(0));
  return mixed;
}

at::Tensor mix_targets(const at::Tensor& labels, int64_t num_classes, const Mix& mix, double smoothing) {
  check_smoothing(smoothing);
  TORCH_CHECK(labels.dim() == 1 && labels.scalar_type() == at::kLong, "[mix_targets] labels are ",
              labels.scalar_type(), " ", labels.sizes(), "; expected int64 [batch]");
  TORCH_CHECK(num_classes > 0, "[mix_targets] ", num_classes, " classes; there must be some");
  if (labels.is_cpu() && labels.numel() > 0) {
    const auto lowest = labels.min().item<int64_t>(), highest = labels.max().item<int64_t>();
    TORCH_CHECK(lowest >= 0 && highest < num_classes, "[mix_targets] the label ",
                lowest < 0 ? lowest : highest, " is out of range; there are ", num_classes,
                " classes, from 0");
  }
  const at::Tensor own = at::zeros({labels.size(0), num_classes}, labels.options().dtype(at::kFloat))
                             .scatter_(1, labels.unsqueeze(1), 1);
  const at::Tensor mixed = mix.lambda == 1 ? own : own.flip(0).lerp_(own, mix.lambda);
  return mixed.mul(1 - smoothing).add_(smoothing / static_cast<double>(num_classes));
}

}  // namespace tpgm

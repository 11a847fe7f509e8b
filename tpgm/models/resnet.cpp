#include "tpgm/models/resnet.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include <cmath>

#include "tpgm/nn/folded_norm.h"

namespace tpgm {

using PoolAfter = kernels::Pool;

namespace {

// In channels-last the mean is taken so that its gradient is channels-last, too, and need not be copied.
at::Tensor mean_of_pixels(const at::Tensor& x) {
  return x.is_contiguous(at::MemoryFormat::ChannelsLast) ? x.permute({0, 2, 3, 1}).flatten(1, 2).mean(1)
                                                         : x.mean({2, 3});
}

}  // namespace

// Two or three times conv-norm-ReLU, where the shortcut is added before the last ReLU.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(const ResNetOptions& options, int64_t in, int64_t width, int64_t stride)
      : out(options.bottleneck() ? 4 * width : width), pools_(options.antialias() && stride == 2) {
    TORCH_CHECK(stride == 1 || stride == 2, "[ResNet] a block has stride 1 or 2, not ", stride);
    const int64_t conv_stride = options.antialias() ? 1 : stride;
    if (options.bottleneck()) {
      add(in, width, 1, 1);
      add(width, width, 3, conv_stride);
      add(width, out, 1, 1);
    } else {
      add(in, width, 3, conv_stride);
      add(width, width, 3, 1);
    }
    if (stride != 1 || in != out) {
      const auto downsample = register_module("downsample", std::make_shared<torch::nn::Module>());
      shortcut_conv_ = downsample->register_module("0", Conv2d(in, out, 1, conv_stride));
      shortcut_norm_ = downsample->register_module("1", BatchNorm2d(out));
    }
  }

  SharedOutput forward(const SharedOutput& x) {
    at::Tensor shortcut = x.second;
    if (!shortcut_conv_.is_empty()) {
      if (pools_) shortcut = mean_pool(shortcut);
      shortcut = conv_norm(*shortcut_conv_, *shortcut_norm_, shortcut, {.relu = false}).first;
    }
    at::Tensor y = x.first;
    for (size_t i = 0; i + 1 < convs_.size(); ++i) {
      const bool pools = pools_ && i + 2 == convs_.size();
      y = conv_norm(*convs_[i], *norms_[i], y, {.pool = pools ? PoolAfter::kMean : PoolAfter::kNone}).first;
    }
    return conv_norm(*convs_.back(), *norms_.back(), y, {.residual = shortcut});
  }

  // For a feature map of `side` pixels on a side; sets `side` to that of the result.
  int64_t multiply_adds(int64_t& side) const {
    int64_t count = 0, before = side;
    for (size_t i = 0; i < convs_.size(); ++i) {
      if (i + 1 == convs_.size()) side /= pools_ ? 2 : 1;
      count += convs_[i]->multiply_adds(side);
      side = convs_[i]->side_after(side);
    }
    return count + (shortcut_conv_.is_empty() ? 0 : shortcut_conv_->multiply_adds(before / (pools_ ? 2 : 1)));
  }

  void list(FoldedNorms::Pairs& pairs) const {
    for (size_t i = 0; i < convs_.size(); ++i) pairs.emplace_back(convs_[i].get(), norms_[i].get());
    if (!shortcut_conv_.is_empty()) pairs.emplace_back(shortcut_conv_.get(), shortcut_norm_.get());
  }

  // The norm before the addition.
  BatchNorm2dImpl& last_norm() { return *norms_.back(); }

  const int64_t out;

 private:
  void add(int64_t in, int64_t width, int64_t kernel, int64_t stride) {
    const size_t number = convs_.size() + 1;
    convs_.push_back(register_module(fmt::format("conv{}", number), Conv2d(in, width, kernel, stride)));
    norms_.push_back(register_module(fmt::format("bn{}", number), BatchNorm2d(width)));
  }

  bool pools_;  // average-pools by 2 before the last convolution
  std::vector<Conv2d> convs_;
  std::vector<BatchNorm2d> norms_;
  Conv2d shortcut_conv_{nullptr};
  BatchNorm2d shortcut_norm_{nullptr};
};

ResNet::ResNet(const ResNetOptions& options) : options_(options) {
  TORCH_CHECK(
      !options.layers().empty() && options.width() > 0 && options.channels() > 0 && options.image_size() > 0,
      "[ResNet] layers, width, channels and image_size must be positive");
  TORCH_CHECK(options.stem() != Stem::kThree || options.width() % 2 == 0, "[ResNet] a width of ",
              options.width(), " is odd, and the first convolutions of this stem have half of it");
  const bool attention = options.pool_heads() > 0;
  TORCH_CHECK(
      attention == (options.embedding() > 0),
      "[ResNet] pool_heads and embedding go together: both for attention pooling, neither for the mean");
  const int64_t width = options.width();
  const auto stem = register_module("stem", std::make_shared<torch::nn::Module>());
  const auto add_stem = [&](int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    const size_t number = stem_convs_.size() + 1;
    stem_convs_.push_back(
        stem->register_module(fmt::format("conv{}", number), Conv2d(in, out, kernel, stride)));
    stem_norms_.push_back(stem->register_module(fmt::format("bn{}", number), BatchNorm2d(out)));
  };
  if (options.stem() == Stem::kThree) {
    add_stem(options.channels(), width / 2, 3, 2);
    add_stem(width / 2, width / 2, 3, 1);
    add_stem(width / 2, width, 3, 1);
  } else {
    const bool small = options.stem() == Stem::kSmall;
    add_stem(options.channels(), width, small ? 3 : 7, small ? 1 : 2);
  }
  names_ = {"stem"};
  widths_ = {width};

  int64_t in = width, scale = options.stem() == Stem::kSmall ? 1 : 4;
  for (size_t stage = 0; stage < options.layers().size(); ++stage) {
    const auto name = fmt::format("layer{}", stage + 1);
    const auto list = register_module(name, std::make_shared<torch::nn::Module>());
    TORCH_CHECK(options.layers()[stage] > 0, "[ResNet] stage ", stage + 1, " has no blocks");
    for (int64_t i = 0; i < options.layers()[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const auto block = std::make_shared<ResidualBlock>(options, in, width << stage, stride);
      residual_blocks_.push_back(list->register_module(fmt::format("{}", i), block));
      names_.push_back(fmt::format("{}.{}", name, i));
      widths_.push_back(in = block->out);
      scale *= stride;
    }
  }
  if (attention) {
    TORCH_CHECK(options.image_size() % scale == 0, "[ResNet] image_size ", options.image_size(),
                " is not a multiple of ", scale,
                ", by which the stages divide it; attention pooling needs one");
    const int64_t side = options.image_size() / scale;
    pool_ =
        register_module("pool", AttentionPool(side * side, in, options.pool_heads(), options.embedding()));
    names_.emplace_back("pool");
    widths_.push_back(options.embedding());
  }
}

SharedOutput ResNet::stem(const at::Tensor& images) {
  SharedOutput x{images, images};
  for (size_t i = 0; i < stem_convs_.size(); ++i) {
    PoolAfter pool = PoolAfter::kNone;
    if (i + 1 == stem_convs_.size() && options_.stem() == Stem::kImageNet) pool = PoolAfter::kMax;
    if (i + 1 == stem_convs_.size() && options_.stem() == Stem::kThree) pool = PoolAfter::kMean;
    x = conv_norm(*stem_convs_[i], *stem_norms_[i], x.first, {.pool = pool});
  }
  return x;
}

at::Tensor ResNet::features(const at::Tensor& images, const std::string& layer) {
  const size_t last = layer.empty() ? names_.size() - 1 : index_of(layer);
  const bool attention = !pool_.is_empty() && last + 1 == names_.size();
  check_images(images, /*any_size=*/!attention);
  const size_t blocks = std::min(last, residual_blocks_.size());
  FoldedNorms::Pairs pairs;
  for (size_t i = 0; i < stem_convs_.size(); ++i)
    pairs.emplace_back(stem_convs_[i].get(), stem_norms_[i].get());
  for (size_t i = 0; i < blocks; ++i) residual_blocks_[i]->list(pairs);
  const FoldedNorms folded(pairs);
  SharedOutput x = stem(images);
  for (size_t i = 0; i < blocks; ++i) x = residual_blocks_[i]->forward(x);
  return attention ? pool_->forward(x.first) : mean_of_pixels(x.first);
}

int64_t ResNet::num_features(const std::string& layer) const {
  return layer.empty() ? widths_.back() : widths_[index_of(layer)];
}

int64_t ResNet::multiply_adds() const {
  int64_t count = 0, side = options_.image_size();
  for (const auto& conv : stem_convs_) {
    count += conv->multiply_adds(side);
    side = conv->side_after(side);
  }
  if (options_.stem() == Stem::kImageNet) side = (side + 1) / 2;
  if (options_.stem() == Stem::kThree) side /= 2;
  for (const auto& block : residual_blocks_) count += block->multiply_adds(side);
  return count + (pool_.is_empty() ? 0 : pool_->multiply_adds());
}

void ResNet::reset_parameters() {
  const at::NoGradGuard no_grad;
  for (const auto& module : modules()) {
    if (auto* conv = module->as<Conv2dImpl>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    } else if (auto* norm = module->as<BatchNorm2dImpl>()) {
      norm->weight.fill_(1);
      norm->bias.zero_();
      norm->running_mean.zero_();
      norm->running_var.fill_(1);
      norm->num_batches_tracked.zero_();
    }
  }
  if (pool_.is_empty()) return;
  for (const auto& block : residual_blocks_) block->last_norm().weight.zero_();
  const double std = 1 / std::sqrt(static_cast<double>(pool_->position.size(1)));
  for (auto& item : pool_->named_parameters()) {
    item.key().ends_with("bias") ? item.value().zero_() : item.value().normal_(0, std);
  }
}

}  // namespace tpgm

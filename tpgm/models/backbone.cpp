// Checks that all image models share, and blocks as globs.
#include "tpgm/models/backbone.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tpgm {

void Backbone::check_images(const at::Tensor& images, bool any_size) const {
  const bool right = images.dim() == 4 && images.size(1) == channels() &&
                     (any_size || (images.size(2) == image_size() && images.size(3) == image_size()));
  TORCH_CHECK(right, "[Backbone] images are ", fmt::format("[{}]", fmt::join(images.sizes(), ",")),
              ", the model takes [batch,", channels(), ",",
              any_size ? "height,width]" : fmt::format("{0},{0}]", image_size()),
              any_size ? "" : "; resize them, or make the model with their image_size");
}

size_t Backbone::index_of(const std::string& layer) const {
  const auto names = blocks();
  const auto found = std::find(names.begin(), names.end(), layer);
  TORCH_CHECK(found != names.end(), "[Backbone] there is no layer '", layer, "'; there are ",
              fmt::format("{}", fmt::join(names, ", ")));
  return static_cast<size_t>(found - names.begin());
}

std::vector<std::string> block_globs(const Backbone& backbone, const std::string& prefix) {
  const auto parameters = backbone.named_parameters();
  std::vector<std::string> globs;
  for (const auto& block : backbone.blocks())
    globs.push_back(prefix + block + (parameters.contains(block) ? "" : ".*"));
  return globs;
}

}  // namespace tpgm

// The parameter shapes of well-known models, so that a benchmark needs no model and no weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpgm::benchmarks {

using Shape = std::vector<int64_t>;

/// "resnet50" (torchvision's), "vit-b-16", "vit-l-14" (the image towers, with a head of 1000 classes).
std::vector<std::string> model_names();
std::vector<Shape> model_shapes(const std::string& name);

}  // namespace tpgm::benchmarks

#include "tpgm/train/parameter_groups.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <unordered_set>
#include <utility>

namespace tpgm {

std::vector<ParameterGroup> parameter_groups(const NamedTensors& parameters,
                                             const std::vector<std::string>& blocks,
                                             const GroupOptions& options) {
  const auto is_factor = [](double value) { return value >= 0 && std::isfinite(value); };
  TORCH_CHECK(is_factor(options.weight_decay()), "[parameter_groups] weight_decay must be at least 0, not ",
              options.weight_decay());
  TORCH_CHECK(options.layer_decay() > 0 && std::isfinite(options.layer_decay()),
              "[parameter_groups] layer_decay must be more than 0, not ", options.layer_decay());
  TORCH_CHECK(is_factor(options.head_scale()), "[parameter_groups] head_scale must be at least 0, not ",
              options.head_scale());
  TORCH_CHECK(options.layer_decay() == 1 || !blocks.empty(), "[parameter_groups] layer_decay is ",
              options.layer_decay(), ", and the model has no blocks to apply it to; leave it at 1");

  const auto in_block = [](const std::string& name, const std::string& block) {
    return name.starts_with(block) && (name.size() == block.size() || name[block.size()] == '.');
  };
  const auto lr_scale_of = [&](const std::string& name) {
    if (in_block(name, options.head())) return options.head_scale();
    size_t best = 0, length = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].size() > length && in_block(name, blocks[b])) {
        best = b;
        length = blocks[b].size();  // of nested blocks the inner one
      }
    }
    return std::pow(options.layer_decay(), static_cast<double>(blocks.size() - best));
  };
  const auto decay_of = [&](const std::string& name, const at::Tensor& parameter) {
    const bool spared = parameter.dim() <= 1 || name == "bias" || name.ends_with(".bias");
    return spared && !options.decay_all() ? 0 : options.weight_decay();
  };

  std::vector<ParameterGroup> groups;
  std::map<std::pair<double, double>, size_t> places;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : parameters) {
    const auto& [name, parameter] = item.pair();
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const std::pair key(lr_scale_of(name), decay_of(name, parameter));
    const auto [place, is_new] = places.emplace(key, groups.size());
    if (is_new) {
      groups.push_back({.parameters = NamedTensors(), .lr_scale = key.first, .weight_decay = key.second});
    }
    groups[place->second].parameters.insert(name, parameter);
  }
  return groups;
}

}  // namespace tpgm

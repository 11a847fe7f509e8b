#include "tpgm/core/selection.h"

#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace tpgm {
namespace {

std::string shape(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ",")); }

bool excluded(const std::vector<std::string>& exclude, const std::string& name) {
  return std::any_of(exclude.begin(), exclude.end(), [&](const auto& glob) { return matches(glob, name); });
}

// The first ten of `lines` and the number of the others.
std::string first_ten(const std::vector<std::string>& lines) {
  const auto shown = std::min<size_t>(lines.size(), 10);
  auto text = fmt::format("{}", fmt::join(lines.begin(), lines.begin() + shown, ", "));
  if (lines.size() > shown) text += fmt::format(" and {} more", lines.size() - shown);
  return text;
}

// A glob that excludes the named parameters: that of their common module.
std::string suggested_glob(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot) + ".*";
}

// Equal for two tensors that share all of their memory.
using Identity = std::pair<const void*, int64_t>;
Identity identity(const at::Tensor& tensor) {
  return tensor.numel() > 0 ? Identity(tensor.const_data_ptr(), tensor.numel())
                            : Identity(tensor.unsafeGetTensorImpl(), 0);
}

bool can_be_constrained(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.layout() == at::kStrided &&
         (type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16);
}

// Shared by both selections. `candidates` are all tensors that could be constrained, under all of their
// names.
std::vector<Selected> match(const NamedTensors& candidates, const NamedTensors& anchor,
                            const std::vector<std::string>& exclude) {
  // By tensor, because a tied tensor has several names.
  std::map<Identity, std::vector<std::string>> names;
  for (const auto& item : candidates) names[identity(item.value())].push_back(item.key());

  std::vector<Selected> selected;
  std::vector<std::string> missing;
  std::string missing_glob;
  for (const auto& item : candidates) {
    const auto& aliases = names[identity(item.value())];
    if (aliases.front() != item.key() || std::any_of(aliases.begin(), aliases.end(), [&](const auto& name) {
          return excluded(exclude, name);
        })) {
      continue;
    }
    TORCH_CHECK(can_be_constrained(item.value()), "'", item.key(), "' is ", item.value().scalar_type(), " (",
                item.value().layout(),
                "); only dense float64, float32, float16 and bfloat16 can be constrained; exclude it");
    const at::Tensor* pretrained = nullptr;
    for (const auto& name : aliases) {
      const auto* found = anchor.find(name);
      TORCH_CHECK(!found || !pretrained || found->is_same(*pretrained) || at::equal(*found, *pretrained), "'",
                  aliases.front(), "' and '", name,
                  "' are one tensor in the model, but the anchor has different values for them; "
                  "drop one of them from the anchor, or exclude the tensor");
      pretrained = pretrained ? pretrained : found;
    }
    if (!pretrained) {
      missing.push_back(fmt::format("'{}' {}", item.key(), shape(item.value())));
      missing_glob = missing_glob.empty() ? suggested_glob(item.key()) : missing_glob;
      continue;
    }
    TORCH_CHECK(pretrained->sizes() == item.value().sizes(), "'", item.key(), "' is ", shape(*pretrained),
                " in the anchor, ", shape(item.value()), " in the model; exclude it with exclude({\"",
                suggested_glob(item.key()), "\"})");
    selected.push_back({item.key(), item.value(), *pretrained});
  }
  TORCH_CHECK(missing.empty() || !selected.empty() || anchor.is_empty(),
              "the anchor has none of the model's names: it has '",
              anchor.is_empty() ? "" : anchor.keys().front(), "', the model '",
              candidates.is_empty() ? "" : candidates.keys().front(),
              "'; is there a prefix such as 'module.' to take off?");
  TORCH_CHECK(missing.empty(), "no anchor for ", first_ten(missing),
              "; a new layer has none: exclude it with exclude({\"", missing_glob,
              "\"}), or add its pre-trained values to the anchor");
  TORCH_CHECK(!selected.empty(),
              "nothing to constrain: every parameter is frozen (requires_grad is false) or excluded");
  return selected;
}

}  // namespace

std::vector<Selected> select(const ModuleView& module, const NamedTensors& anchor,
                             const std::vector<std::string>& exclude) {
  const auto parameters = module.named_parameters();
  check_globs("exclude", exclude, parameters.keys());
  NamedTensors trainable;
  for (const auto& item : parameters)
    if (item.value().requires_grad()) trainable.insert(item.key(), item.value());
  return match(trainable, anchor, exclude);
}

std::vector<Selected> select_with_buffers(const ModuleView& module, const NamedTensors& anchor,
                                          const std::vector<std::string>& exclude) {
  const auto tensors = named_tensors(module);
  check_globs("exclude", exclude, tensors.keys());
  NamedTensors floating;
  for (const auto& item : tensors)
    if (item.value().is_floating_point()) floating.insert(item.key(), item.value());
  return match(floating, anchor, exclude);
}

}  // namespace tpgm

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

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

bool excluded(const std::vector<std::string>& exclude, const std::string& name) {
  return std::any_of(exclude.begin(), exclude.end(), [&](const auto& glob) { return matches(glob, name); });
}

/// The first ten of `lines`, and how many more there are.
std::string first_ten(const std::vector<std::string>& lines) {
  const auto shown = std::min<std::size_t>(lines.size(), 10);
  auto text = fmt::format("{}", fmt::join(lines.begin(), lines.begin() + shown, ", "));
  if (lines.size() > shown) {
    text += fmt::format(" and {} more", lines.size() - shown);
  }
  return text;
}

/// A glob that would take the named parameters out: their common module.
std::string suggested_glob(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot) + ".*";
}

/// The same for two tensors that share all of their memory.
using Identity = std::pair<const void*, std::int64_t>;
Identity identity(const at::Tensor& tensor) {
  return tensor.numel() > 0 ? Identity(tensor.const_data_ptr(), tensor.numel())
                            : Identity(tensor.unsafeGetTensorImpl(), 0);
}

bool can_be_constrained(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.layout() == at::kStrided &&
         (type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16);
}

/// The work of both selections: `candidates` are what could be constrained, tied names included.
std::vector<Selected> match(const std::string& owner, const NamedTensors& candidates,
                            const NamedTensors& anchor, const std::vector<std::string>& exclude) {
  // Names by tensor, because one tensor may have several.
  std::map<Identity, std::vector<std::string>> names;
  for (const auto& item : candidates) {
    names[identity(item.value())].push_back(item.key());
  }

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
    TORCH_CHECK(can_be_constrained(item.value()), "[", owner, "] '", item.key(), "' is ",
                item.value().scalar_type(), " (", item.value().layout(),
                "); only dense float64, float32, float16 and bfloat16 can be constrained; exclude it");
    const at::Tensor* pretrained = nullptr;
    for (const auto& name : aliases) {
      const auto* found = anchor.find(name);
      TORCH_CHECK(!found || !pretrained || found->is_same(*pretrained) || at::equal(*found, *pretrained), "[",
                  owner, "] '", aliases.front(), "' and '", name,
                  "' are one tensor in the model, but the anchor has different values for them; "
                  "drop one of them from the anchor, or exclude the tensor");
      pretrained = pretrained ? pretrained : found;
    }
    if (!pretrained) {
      missing.push_back(fmt::format("'{}' {}", item.key(), shape(item.value())));
      missing_glob = missing_glob.empty() ? suggested_glob(item.key()) : missing_glob;
      continue;
    }
    TORCH_CHECK(pretrained->sizes() == item.value().sizes(), "[", owner, "] '", item.key(), "' is ",
                shape(*pretrained), " in the anchor, ", shape(item.value()),
                " in the model; exclude it with exclude({\"", suggested_glob(item.key()), "\"})");
    selected.push_back({item.key(), item.value(), *pretrained});
  }
  TORCH_CHECK(missing.empty() || !selected.empty() || anchor.is_empty(), "[", owner,
              "] the anchor has none of the model's names: it has '",
              anchor.is_empty() ? "" : anchor.keys().front(), "', the model '",
              candidates.is_empty() ? "" : candidates.keys().front(),
              "'; is there a prefix such as 'module.' to take off?");
  TORCH_CHECK(missing.empty(), "[", owner, "] no anchor for ", first_ten(missing),
              "; a new layer has none: exclude it with exclude({\"", missing_glob,
              "\"}), or add its pre-trained values to the anchor");
  TORCH_CHECK(!selected.empty(), "[", owner,
              "] nothing to constrain: every parameter is frozen (requires_grad is false) or excluded");
  return selected;
}

}  // namespace

bool matches(const std::string& glob, const std::string& name) {
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  const auto best = std::min_element(words.begin(), words.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  return best == words.end() ? "" : *best;
}

void check_globs(const std::string& owner, const std::string& option, const std::vector<std::string>& globs,
                 const std::vector<std::string>& names) {
  for (const auto& glob : globs) {
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(glob, name); })) {
      continue;
    }
    const auto hint = nearest(glob, names);
    TORCH_CHECK(false, "[", owner, "] ", option, " '", glob, "' matches no parameter",
                hint.empty() ? "; the model has none" : "; the nearest is '" + hint + "'");
  }
}

NamedTensors named_tensors(const torch::nn::Module& module) {
  auto tensors = module.named_parameters();
  tensors.update(module.named_buffers());
  return tensors;
}

std::vector<Selected> select(const std::string& owner, const torch::nn::Module& module,
                             const NamedTensors& anchor, const std::vector<std::string>& exclude) {
  const auto parameters = module.named_parameters();
  check_globs(owner, "exclude", exclude, parameters.keys());
  NamedTensors trainable;
  for (const auto& item : parameters) {
    if (item.value().requires_grad()) {
      trainable.insert(item.key(), item.value());
    }
  }
  return match(owner, trainable, anchor, exclude);
}

std::vector<Selected> select_with_buffers(const std::string& owner, const torch::nn::Module& module,
                                          const NamedTensors& anchor,
                                          const std::vector<std::string>& exclude) {
  const auto tensors = named_tensors(module);
  check_globs(owner, "exclude", exclude, tensors.keys());
  NamedTensors floating;
  for (const auto& item : tensors) {
    if (item.value().is_floating_point()) {
      floating.insert(item.key(), item.value());
    }
  }
  return match(owner, floating, anchor, exclude);
}

std::string block_name(const std::string& name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t begin = 0;
  while (true) {
    const auto end = name.find('.', begin);
    if (end == std::string::npos) {
      break;  // the parameter's own name does not count
    }
    const auto part = name.substr(begin, end - begin);
    const auto digits = std::find_if_not(part.rbegin(), part.rend(), is_digit);
    if (digits == part.rend() || (digits != part.rbegin() && *digits == '_')) {
      return name.substr(0, end);
    }
    begin = end + 1;
  }
  return begin == 0 ? "" : name.substr(0, begin - 1);
}

}  // namespace tpgm

// State dicts: collects them from a module, matches names, and copies values into a module.
#include "tpgm/io/state_dict.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/io/mismatches.h"
#include "tpgm/io/safetensors.h"

namespace tpgm {
namespace {

// The origin of the tensors, in an error message.
struct Source {
  const char* noun;
  std::string suffix;
  bool can_exclude = true;
};

bool matches(const std::string& glob, const std::string& name) {
  return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::string shape_of(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ",")); }

// `state` without the names that `exclude` matches; marks in `used` the globs that matched.
NamedTensors without(const NamedTensors& state, const std::vector<std::string>& exclude,
                     std::vector<bool>& used) {
  NamedTensors kept("Tensor");
  for (const auto& item : state) {
    bool excluded = false;
    for (size_t i = 0; i < exclude.size(); ++i) {
      if (!matches(exclude[i], item.key())) continue;
      excluded = true;
      used[i] = true;
    }
    if (!excluded) kept.insert(item.key(), item.value());
  }
  return kept;
}

// The reason why `from` cannot be copied into `into`, or empty.
std::string mismatch(const at::Tensor& from, const at::Tensor& into, const char* noun) {
  if (!from.defined()) return fmt::format("is undefined in the {}", noun);
  if (from.layout() != at::kStrided || from.is_quantized() || from.is_meta()) {
    return fmt::format("is sparse, quantized or without values in the {}", noun);
  }
  if (from.sizes() != into.sizes()) {
    return fmt::format("is {} in the {}, {} in the model", shape_of(from), noun, shape_of(into));
  }
  if (!c10::canCast(from.scalar_type(), into.scalar_type())) {
    return fmt::format("is {} in the {}, {} in the model, which cannot hold it",
                       c10::toString(from.scalar_type()), noun, c10::toString(into.scalar_type()));
  }
  return "";
}

void load(torch::nn::Module& module, const NamedTensors& tensors, const std::vector<std::string>& exclude,
          const Source& source) {
  std::vector<bool> used(exclude.size(), false);
  const NamedTensors targets = without(state_dict(module), exclude, used);
  const NamedTensors sources = without(tensors, exclude, used);
  for (size_t i = 0; i < exclude.size(); ++i) {
    TORCH_CHECK(used[i], "exclude={\"", exclude[i], "\"} matches no name of the ", source.noun,
                " or the model; correct or drop it", source.suffix);
  }

  Mismatches culprits;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& item : targets) {
    const at::Tensor* from = sources.find(item.key());
    if (from == nullptr) {
      culprits.add(item.key(), fmt::format("is in the model, but not in the {}", source.noun));
    } else if (const auto reason = mismatch(*from, item.value(), source.noun); !reason.empty()) {
      culprits.add(item.key(), reason);
    } else {
      copies.emplace_back(item.value(), *from);
    }
  }
  bool strangers = !sources.is_empty() && !targets.is_empty();
  for (const auto& item : sources) {
    if (targets.contains(item.key())) {
      strangers = false;
    } else {
      culprits.add(item.key(), fmt::format("is in the {}, but not in the model", source.noun));
    }
  }
  if (!culprits.empty()) {
    const std::string way_out =
        strangers ? "no name is common to both: is it a checkpoint of this architecture, without a prefix?"
        : !source.can_exclude
            ? "a variant of this architecture, or an incomplete file?"
            : fmt::format("exclude {} with exclude={{{}}}", culprits.size() == 1 ? "it" : "them",
                          fmt::join(culprits.globs("\"", "\""), ", "));
    TORCH_CHECK(false, culprits.text(source.suffix, way_out));
  }

  const at::NoGradGuard no_grad;
  for (auto& [into, from] : copies) into.copy_(from);
}

void warn(const char* call, const Checkpoint& checkpoint) {
  for (const auto& note : checkpoint.notes()) {
    TORCH_WARN("[", call, "] '", checkpoint.path().string(), "': ", note);
  }
}

}  // namespace

NamedTensors state_dict(const torch::nn::Module& module) {
  NamedTensors result("Tensor");
  for (const auto& item : module.named_parameters()) result.insert(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) result.insert(item.key(), item.value().detach());
  return result;
}

NamedTensors below(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors result("Tensor");
  for (const auto& item : tensors) {
    if (item.key().starts_with(prefix)) result.insert(item.key().substr(prefix.size()), item.value());
  }
  return result;
}

NamedTensors with_prefix(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors result("Tensor");
  for (const auto& item : tensors) result.insert(prefix + item.key(), item.value());
  return result;
}

NamedTensors load_state_dict(const std::filesystem::path& path) try {
  const Checkpoint checkpoint(path);
  warn("load_state_dict", checkpoint);
  return checkpoint.tensors();
} catch (...) {
  rethrow_from("load_state_dict");
}

void load_state_dict(torch::nn::Module& module, const NamedTensors& tensors,
                     const std::vector<std::string>& exclude, const std::filesystem::path& file) try {
  load(module, tensors, exclude,
       {file.empty() ? "state dict" : "file", file.empty() ? "" : fmt::format(" ('{}')", file.string()),
        /*can_exclude=*/file.empty()});
} catch (...) {
  rethrow_from("load_state_dict");
}

void load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                  const std::vector<std::string>& exclude) try {
  load_weights(module, Checkpoint(path), exclude);
} catch (...) {
  rethrow_from("load_weights");
}

void load_weights(torch::nn::Module& module, Checkpoint checkpoint,
                  const std::vector<std::string>& exclude) try {
  if (!checkpoint.prefix().empty()) {
    // The prefix may be part of the model's own names.
    const NamedTensors state = state_dict(module);
    const auto& names = checkpoint.names();
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return state.contains(checkpoint.prefix() + name); })) {
      checkpoint.restore_prefix();
    }
  }
  warn("load_weights", checkpoint);
  load(module, checkpoint.tensors(), exclude, {"file", fmt::format(" ('{}')", checkpoint.path().string())});
} catch (...) {
  rethrow_from("load_weights");
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& file,
                  const Metadata& metadata) {
  save_safetensors(state_dict(module), file, metadata);
}

}  // namespace tpgm

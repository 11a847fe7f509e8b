// State dictionaries: collected from a module, matched by name and copied into one.
#include "tpgm/io/state_dict.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

#include "tpgm/io/safetensors.h"

namespace tpgm {
namespace {

constexpr size_t kMaxCulprits = 10;

// Who loads, from what: the words of an error message.
struct Source {
  const char* call;
  const char* noun;
  std::string suffix;
};

bool matches(const std::string& glob, const std::string& name) {
  return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::string shape_of(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ",")); }

// `state` without what `exclude` matches; marks in `used` the globs that matched.
StateDict without(const StateDict& state, const std::vector<std::string>& exclude, std::vector<bool>& used) {
  StateDict kept("Tensor");
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

// Why `from` cannot be copied into `into`, or nothing.
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

// "head.weight" → "head.*": who drops a layer's weight hardly wants its bias.
std::string glob_for(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot) + ".*";
}

struct Culprits {
  std::vector<std::string> lines;
  std::vector<std::string> globs;

  void add(const std::string& name, const std::string& reason) {
    lines.push_back(fmt::format("'{}' {}", name, reason));
    const std::string glob = '"' + glob_for(name) + '"';
    if (lines.size() > kMaxCulprits || std::find(globs.begin(), globs.end(), glob) != globs.end()) return;
    globs.push_back(glob);
  }

  // One culprit makes a line, several make a list.
  std::string text(const Source& source, bool strangers) const {
    const bool one = lines.size() == 1;
    const std::string out =
        strangers
            ? "no name is common to both: is it a checkpoint of this architecture, without a prefix?"
            : fmt::format("exclude {} with exclude={{{}}}", one ? "it" : "them", fmt::join(globs, ", "));
    if (one) return fmt::format("[{}] {}; {}{}", source.call, lines[0], out, source.suffix);
    const auto shown = lines.begin() + static_cast<ptrdiff_t>(std::min(lines.size(), kMaxCulprits));
    std::string text = fmt::format("[{}] {} tensors do not fit{}:\n  {}\n", source.call, lines.size(),
                                   source.suffix, fmt::join(lines.begin(), shown, "\n  "));
    if (shown != lines.end()) text += fmt::format("  and {} more\n", lines.end() - shown);
    return text + out;
  }
};

void load(torch::nn::Module& module, const StateDict& tensors, const std::vector<std::string>& exclude,
          const Source& source) {
  std::vector<bool> used(exclude.size(), false);
  const StateDict targets = without(state_dict(module), exclude, used);
  const StateDict sources = without(tensors, exclude, used);
  for (size_t i = 0; i < exclude.size(); ++i) {
    TORCH_CHECK(used[i], "[", source.call, "] exclude={\"", exclude[i], "\"} matches no name of the ",
                source.noun, " or the model; correct or drop it", source.suffix);
  }

  Culprits culprits;
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
  TORCH_CHECK(culprits.lines.empty(), culprits.text(source, strangers));

  const at::NoGradGuard no_grad;
  for (auto& [into, from] : copies) into.copy_(from);
}

}  // namespace

StateDict state_dict(const torch::nn::Module& module) {
  StateDict result("Tensor");
  for (const auto& item : module.named_parameters()) result.insert(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) result.insert(item.key(), item.value().detach());
  return result;
}

StateDict load_state_dict(const std::filesystem::path& file) {
  // Nine bytes tell the formats apart: the ninth of a safetensors file opens its header. A file that cannot
  // be read, or is something else again, is left to SafetensorsFile to complain about.
  std::string start(9, '\0');
  std::ifstream(file, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
  const bool zip = start.starts_with("PK\x03\x04");
  const bool pickle = start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;
  TORCH_CHECK(start[8] == '{' || !(zip || pickle), "[load_state_dict] '", file.string(),
              "' is a PyTorch pickle, which can run code; convert it in Python: ",
              "safetensors.torch.save_file(torch.load('", file.filename().string(),
              "', weights_only=True), '",
              std::filesystem::path(file).filename().replace_extension(".safetensors").string(), "')");
  return SafetensorsFile(file).tensors();
}

void load_state_dict(torch::nn::Module& module, const StateDict& tensors,
                     const std::vector<std::string>& exclude) {
  load(module, tensors, exclude, {"load_state_dict", "state dict", ""});
}

void load_weights(torch::nn::Module& module, const std::filesystem::path& file,
                  const std::vector<std::string>& exclude) {
  load(module, load_state_dict(file), exclude,
       {"load_weights", "file", fmt::format(" ('{}')", file.string())});
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& file,
                  const std::map<std::string, std::string>& metadata) {
  save_safetensors(state_dict(module), file, metadata);
}

}  // namespace tpgm

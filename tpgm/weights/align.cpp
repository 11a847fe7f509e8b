#include "tpgm/weights/align.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/checkpoints/chunks.h"
#include "tpgm/models/families.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

std::string shown(const Checkpoint& checkpoint) {
  return fmt::format("'{}'", printable(checkpoint.path().string(), kMaxPath));
}

// Parts that a run has and the checkpoint it began from has not, or the other way round.
constexpr const char* kParts[] = {"head.", "text.", "logit_scale"};

bool in_a_part(const std::string& name) {
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](const char* part) { return name.starts_with(part); });
}

// Whether the names of one, but for such parts, are all in the other.
bool agree(const Checkpoint& a, const Checkpoint& b) {
  const auto within = [](const Checkpoint& one, const Checkpoint& other) {
    return std::all_of(one.names().begin(), one.names().end(),
                       [&](const std::string& name) { return in_a_part(name) || other.contains(name); });
  };
  return within(a, b) || within(b, a);
}

// Nothing for models that keep names of their own: scripts, and those that are not known here.
std::optional<RenamedWeights> known_weights_of(const Checkpoint& checkpoint) {
  const auto model = model_of(checkpoint);
  if ((model && model->family->is_file()) || !recognise(checkpoint.names())) return std::nullopt;
  return rename_weights(checkpoint);
}

// With "backbone." before all names, as a run saves a model that is a file.
Checkpoint below_backbone(const Checkpoint& checkpoint) {
  NamedTensors tensors("Tensor");
  for (const auto& name : checkpoint.names()) tensors.insert("backbone." + name, checkpoint.tensor(name));
  Checkpoint result = checkpoint;
  result.set_tensors(tensors);
  return result;
}

bool has_part(const Checkpoint& checkpoint, const std::string& part) {
  return std::any_of(checkpoint.names().begin(), checkpoint.names().end(),
                     [&](const std::string& name) { return name.starts_with(part); });
}

// Notes and globs of the parts that only one of them has, and of heads for different classes.
void compare_parts(const Checkpoint& a, const Checkpoint& b, Alignment& result) {
  const auto add = [&](const std::string& part, const std::string& note) {
    result.own_parts.push_back(part + "*");
    result.notes.push_back(note);
  };
  for (const std::string part : kParts) {
    if (has_part(a, part) != has_part(b, part))
      add(part, fmt::format("only {} has {}*", shown(has_part(a, part) ? a : b), part));
  }
  const std::string head = "head.weight";
  if (a.contains(head) && b.contains(head) && a.entry(head).shape != b.entry(head).shape)
    add("head.", "their heads are of different shapes");
}

// With `prefix` before the names of the image tower: "backbone." as in a run, or that of the family.
NamedTensors with_prefix(const RenamedWeights& weights, const std::string& prefix) {
  const std::string own = weights.family->image_prefix();
  NamedTensors result("Tensor");
  for (const auto& item : weights.tensors) {
    const auto& name = item.key();
    result.insert(in_a_part(name) ? name : prefix + name.substr(own.size()), item.value());
  }
  return result;
}

// A classifier's backbone does not show whether it was CLIP's; families of one signature are alike.
bool alike(const Family& a, const Family& b) {
  return (*a.recognition)->signature == (*b.recognition)->signature;
}

}  // namespace

Alignment align_layouts(Checkpoint& a, Checkpoint& b) try {
  Alignment result;
  Checkpoint with_prefix_a = a, with_prefix_b = b;
  align_names(with_prefix_a, with_prefix_b);
  if (agree(with_prefix_a, with_prefix_b)) return result;
  for (auto* file : {&a, &b}) {
    auto& run = file == &a ? b : a;
    if (!has_part(run, "backbone.") || has_part(*file, "backbone.")) continue;
    const Checkpoint renamed = below_backbone(*file);
    if (!agree(renamed, run)) continue;
    *file = renamed;
    result.notes.push_back(fmt::format("{} is the backbone of {}", shown(*file), shown(run)));
    compare_parts(a, b, result);
    return result;
  }
  const auto first = known_weights_of(a), second = known_weights_of(b);
  if (!first || !second) return result;
  TORCH_CHECK(alike(*first->family, *second->family), shown(a), " is a ", first->family->name, ", and ",
              shown(b), " a ", second->family->name, ": they must be of one architecture");
  const bool run_a = has_part(a, "backbone."), run_b = has_part(b, "backbone."), run = run_a || run_b;
  if (first->layout == second->layout && first->layout != Layout::kTpgm && run_a == run_b) return result;
  a.set_tensors(with_prefix(*first, run ? "backbone." : first->family->image_prefix()));
  b.set_tensors(with_prefix(*second, run ? "backbone." : second->family->image_prefix()));
  result.notes.push_back(fmt::format("the names of {} (layout: {}) and {} (layout: {}) differ; both get ours",
                                     shown(a), to_text(first->layout), shown(b), to_text(second->layout)));
  compare_parts(a, b, result);
  return result;
} catch (...) {
  rethrow_from("align_layouts");
}

}  // namespace tpgm

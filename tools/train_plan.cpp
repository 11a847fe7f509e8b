// `tpgm train --dry-run`: what a run would do.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/train.h"
#include "tpgm/base/numbers.h"
#include "tpgm/train/memory.h"
#include "tpgm/train/recipe.h"
#include "tpgm/train/setup.h"

namespace tpgm::tools {
namespace {

std::string names_text(const std::vector<std::string>& names) {
  std::string text = fmt::format("{}", names.size());
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}{}", i % 4 == 0 ? "\n#     " : "  ", names[i]);
  return text;
}

}  // namespace

void print_plan(const TrainOptions& options) {
  check_new_run(options);
  Setup setup = prepare_run(options);
  for (const auto& note : setup.notes) say_line("train", note);
  const auto& o = setup.options;
  fmt::print("{}\n# Data\n", to_toml(o));
  for (const auto& note : setup.data.notes) fmt::print("# {}\n", with_flags(note));

  const auto constrained = constrained_by(*setup.method);
  std::vector<std::string> excluded;
  for (const auto& item : setup.model->named_parameters()) {
    if (std::find(constrained.begin(), constrained.end(), item.key()) == constrained.end())
      excluded.push_back(item.key());
  }
  if (!constrained.empty()) fmt::print("#\n# constrained tensors: {}\n", names_text(constrained));
  fmt::print("# {}: {}\n",
             constrained.empty() ? "unconstrained tensors (the method has no anchor)" : "excluded tensors",
             names_text(excluded));

  const int64_t per_epoch = setup.data.train.size() / o.batch_size / o.grad_accum_steps;
  fmt::print("#\n# steps: {} ({} of {}), {} each\n", grouped(o.epochs * per_epoch),
             counted(o.epochs, "epoch"), per_epoch, counted(o.batch_size * o.grad_accum_steps, "image"));
  const auto memory = estimate_memory(setup);
  fmt::print(
      "# memory, estimated: {} (weights {}, gradients {}, optimizer {}, anchor {}, average {}, activations "
      "{})\n",
      bytes_text(static_cast<size_t>(memory.total())), bytes_text(static_cast<size_t>(memory.weights)),
      bytes_text(static_cast<size_t>(memory.gradients)), bytes_text(static_cast<size_t>(memory.optimizer)),
      bytes_text(static_cast<size_t>(memory.anchor)), bytes_text(static_cast<size_t>(memory.ema)),
      bytes_text(static_cast<size_t>(memory.activations)));
}

}  // namespace tpgm::tools

// One checkpoint, as a table or as JSON.
#include "tools/inspect_one.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/command.h"
#include "tools/text.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/metadata.h"

namespace tpgm::tools {
namespace {

constexpr size_t kMaxValue = 1000;  // characters of a metadata value; class names would fill the screen

using Json = nlohmann::ordered_json;

constexpr size_t kMaxName = 1000;

bool wanted(const InspectArguments& args, const std::string& name) {
  return (args.only.empty() || matches_any(args.only, name)) && !matches_any(args.exclude, name);
}

std::vector<std::string> sorted_names(const InspectArguments& args, const Checkpoint& checkpoint) {
  check_globs("`only`", args.only, checkpoint.names());
  check_globs("`exclude`", args.exclude, checkpoint.names());
  std::vector<std::string> names;
  for (const auto& name : checkpoint.names()) {
    if (wanted(args, name)) names.push_back(name);
  }
  if (args.sort == "name") std::stable_sort(names.begin(), names.end(), natural_less);
  if (args.sort == "size") {
    std::stable_sort(names.begin(), names.end(), [&](const std::string& x, const std::string& y) {
      return checkpoint.entry(x).nbytes() > checkpoint.entry(y).nbytes();
    });
  }
  return names;
}

struct Totals {
  int64_t parameters = 0;
  size_t bytes = 0;
  std::map<std::string, int64_t> by_dtype;
};

Totals totals_of(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  Totals totals;
  for (const auto& name : names) {
    const auto& entry = checkpoint.entry(name);
    totals.parameters += entry.numel();
    totals.bytes += entry.nbytes();
    totals.by_dtype[dtype_text(entry.dtype)] += entry.numel();
  }
  return totals;
}

void print_one_as_json(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  Json result = summary(checkpoint);
  const Totals totals = totals_of(checkpoint, names);
  if (const auto model = keys::kModel.of(checkpoint.metadata()); !model.empty()) result["model"] = model;
  result["parameters"] = totals.parameters;
  result["bytes"] = totals.bytes;
  result["tensors"] = Json::array();
  for (const auto& name : names) {
    const auto& entry = checkpoint.entry(name);
    result["tensors"].push_back({{"name", name},
                                 {"dtype", dtype_text(entry.dtype)},
                                 {"shape", entry.shape},
                                 {"parameters", entry.numel()},
                                 {"bytes", entry.nbytes()}});
  }
  fmt::print("{}\n", result.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_one(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  const size_t width = width_of(names, 6);
  fmt::print("{:<{}}  {:<8}  {:<22}  {:>14}  {:>9}\n", "tensor", width, "dtype", "shape", "parameters",
             "size");
  for (const auto& name : names) {
    const auto& entry = checkpoint.entry(name);
    fmt::print("{:<{}}  {:<8}  {:<22}  {:>14}  {:>9}\n", printable(name, kMaxName), width,
               dtype_text(entry.dtype), shape_text(entry.shape), grouped(entry.numel()),
               bytes_text(entry.nbytes()));
  }
  const Totals totals = totals_of(checkpoint, names);
  std::string types;
  for (const auto& [dtype, numel] : totals.by_dtype) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", grouped(numel), dtype);
  }
  fmt::print("\n{}: {}\n{} tensors, {} parameters ({}), {}\n", checkpoint.path().string(),
             checkpoint.format(), grouped(static_cast<int64_t>(names.size())), grouped(totals.parameters),
             types, bytes_text(totals.bytes));
  // Recognizing a model by the names of its tensors would take LibTorch.
  if (const auto model = keys::kModel.of(checkpoint.metadata()); !model.empty())
    fmt::print("model: {}\n", printable(model, kMaxValue));
  if (!checkpoint.metadata().empty()) fmt::print("metadata\n");
  for (const auto& [key, value] : checkpoint.metadata())
    fmt::print("  {}: {}{}\n", printable(key, kMaxName), printable(value, kMaxValue),
               value.size() > kMaxValue ? fmt::format(" ({} bytes; --json shows all)", value.size()) : "");
}

}  // namespace

nlohmann::ordered_json summary(const Checkpoint& checkpoint) {
  Json files = Json::array();
  for (size_t i = 0; i < checkpoint.files().size(); ++i) {
    files.push_back({{"file", checkpoint.files()[i].string()}, {"bytes", checkpoint.mappings()[i]->size()}});
  }
  return {{"path", checkpoint.path().string()},
          {"format", checkpoint.format()},
          {"files", files},
          {"notes", checkpoint.notes()},
          {"metadata", checkpoint.metadata()}};
}

size_t width_of(const std::vector<std::string>& names, size_t least) {
  for (const auto& name : names) least = std::max(least, name.size());
  return std::min<size_t>(least, 72);
}

int inspect_one(const InspectArguments& args) {
  if (args.sort != "file" && args.sort != "name" && args.sort != "size") {
    throw UsageError(
        fmt::format("--sort {} takes two checkpoints; one is sorted by file, name or size", args.sort));
  }
  if (!args.plot.empty()) throw UsageError("--plot draws distances and takes two checkpoints");
  Checkpoint checkpoint(args.a, args.key);
  if (args.keep_prefix) checkpoint.restore_prefix();
  if (!args.json) print_notes("inspect", checkpoint);
  const auto names = sorted_names(args, checkpoint);
  args.json ? print_one_as_json(checkpoint, names) : print_one(checkpoint, names);
  return 0;
}

void add_inspect_options(CLI::App& app, InspectArguments& args) {
  app.add_option("A", args.a, "Checkpoint: a file or folder of any format")->required();
  app.add_option("B", args.b, "Second checkpoint, to measure the distance of its tensors from A's");
  app.add_option("--sort", args.sort,
                 "Sort tensors by file, name, size; with two checkpoints also by l2, mars, relative, cosine "
                 "(largest change first)")
      ->check(CLI::IsMember({"file", "name", "size", "l2", "mars", "relative", "cosine"}));
  app.add_option("--only", args.only, "GLOB: tensors to show; may be repeated; default: all")
      ->allow_extra_args(false);
  app.add_option("--exclude", args.exclude, "GLOB: tensors to leave out; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--key", args.key,
                 "Entry of a nested checkpoint to read, such as state_dict_ema; default: the usual ones");
  app.add_option("--plot", args.plot, "SVG file to write: the distance by depth");
  app.add_flag("--json", args.json, "Print JSON");
  app.add_flag("--keep-prefix", args.keep_prefix,
               "Keep a prefix 'module.', '_orig_mod.' or 'backbone.' that all names share");
}

}  // namespace tpgm::tools

// `tpgm inspect A B`: how far two checkpoints are apart.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/inspect_one.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/checkpoints/compare.h"
#include "tpgm/io/file.h"
#include "tpgm/report/plot.h"
#include "tpgm/weights/align.h"
#include "tpgm/weights/names.h"

namespace tpgm::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxName = 1000;

void sort_tensors(const std::string& by, std::vector<TensorDistance>& tensors) {
  if (by == "file") return;
  const auto key = [&](const TensorDistance& tensor) {
    const double value = by == "l2"         ? tensor.l2
                         : by == "mars"     ? tensor.mars
                         : by == "relative" ? tensor.relative
                         : by == "cosine"   ? -tensor.cosine
                                            : static_cast<double>(tensor.numel);
    // A distance that is NaN sorts first; the cosine of a zero vector, which does not exist, sorts last.
    if (!std::isnan(value)) return value;
    return by == "cosine" ? -std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(tensors.begin(), tensors.end(), [&](const TensorDistance& x, const TensorDistance& y) {
    return by == "name" ? natural_less(x.name, y.name) : key(x) > key(y);
  });
}

void print_two_as_json(const Checkpoint& a, const Checkpoint& b, const Comparison& comparison) {
  const auto block = [](const BlockDistance& each) {
    return Json{
        {"name", each.name},       {"tensors", each.tensors}, {"parameters", each.numel}, {"l2", each.l2},
        {"mean_l2", each.mean_l2}, {"mars", each.mars},       {"relative", each.relative}};
  };
  Json tensors = Json::array(), blocks = Json::array(), reshaped = Json::array();
  for (const auto& each : comparison.tensors) {
    tensors.push_back({{"name", each.name},
                       {"block", each.block},
                       {"shape", each.shape},
                       {"l2", each.l2},
                       {"mars", each.mars},
                       {"relative", each.relative},
                       {"cosine", each.cosine},
                       {"buffer", each.buffer},
                       {"unchanged", each.unchanged}});
  }
  for (const auto& each : comparison.blocks) blocks.push_back(block(each));
  for (const auto& each : comparison.reshaped)
    reshaped.push_back({{"name", each.name}, {"a", each.a}, {"b", each.b}});
  const Json result{{"a", summary(a)},
                    {"b", summary(b)},
                    {"tensors", tensors},
                    {"blocks", blocks},
                    {"all", block(comparison.all)},
                    {"only_a", comparison.only_a},
                    {"only_b", comparison.only_b},
                    {"reshaped", reshaped}};
  fmt::print("{}\n", result.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_list(const char* what, const std::vector<std::string>& lines) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(lines.size(), kShown); ++i)
    fmt::print("{}  {}\n", what, printable(lines[i], kMaxName));
  if (lines.size() > kShown) fmt::print("{}  and {} more (--json lists them)\n", what, lines.size() - kShown);
}

void print_two(const Checkpoint& a, const Checkpoint& b, const Comparison& comparison) {
  std::vector<std::string> names, block_names{"all parameters"};
  for (const auto& each : comparison.tensors) names.push_back(each.name);
  for (const auto& each : comparison.blocks) block_names.push_back(each.name);
  const size_t width = std::max(width_of(names, 6), width_of(block_names, 5));

  size_t unchanged = 0;
  fmt::print("{:<{}}  {:<18}  {:>10}  {:>10}  {:>9}  {:>8}\n", "tensor", width, "shape", "l2", "mars",
             "relative", "cosine");
  for (const auto& each : comparison.tensors) {
    unchanged += each.unchanged ? 1 : 0;
    if (each.unchanged) {
      fmt::print("{:<{}}  {:<18}  {:>10}\n", printable(each.name, kMaxName), width, shape_text(each.shape),
                 "unchanged");
    } else {
      fmt::print("{:<{}}  {:<18}  {:>10.4g}  {:>10.4g}  {:>9.3g}  {:>8}\n", printable(each.name, kMaxName),
                 width, shape_text(each.shape), each.l2, each.mars, each.relative,
                 std::isnan(each.cosine) ? "–" : fmt::format("{:.5f}", each.cosine));
    }
  }
  fmt::print("\n{:<{}}  {:>7}  {:>14}  {:>10}  {:>10}  {:>10}  {:>9}\n", "block", width, "tensors",
             "parameters", "l2", "mean l2", "mars", "relative");
  const auto print_block = [&](const std::string& name, const BlockDistance& each) {
    fmt::print("{:<{}}  {:>7}  {:>14}  {:>10.4g}  {:>10.4g}  {:>10.4g}  {:>9.3g}\n", name, width,
               each.tensors, grouped(each.numel), each.l2, each.mean_l2, each.mars, each.relative);
  };
  for (const auto& each : comparison.blocks) print_block(printable(each.name, kMaxName), each);
  print_block("all parameters", comparison.all);

  fmt::print("\nA  {}: {}\nB  {}: {}\n{} tensors in both, {} of them unchanged\n", a.path().string(),
             a.format(), b.path().string(), b.format(),
             grouped(static_cast<int64_t>(comparison.tensors.size())),
             grouped(static_cast<int64_t>(unchanged)));
  std::vector<std::string> reshaped;
  for (const auto& each : comparison.reshaped) {
    reshaped.push_back(fmt::format("{}  {} in A, {} in B", printable(each.name, kMaxName), shape_text(each.a),
                                   shape_text(each.b)));
  }
  print_list("reshaped ", reshaped);
  print_list("only in A", comparison.only_a);
  print_list("only in B", comparison.only_b);
}

// The name of a block in plots, as in reports: without "backbone.", and of our models the stem as one.
std::string plot_name(std::string block, bool ours) {
  if (block.starts_with("backbone.")) block.erase(0, std::string("backbone.").size());
  const size_t dot = block.rfind('.');
  const bool numbered =
      dot != std::string::npos && std::isdigit(static_cast<unsigned char>(block[dot + 1])) != 0;
  return printable(ours && !numbered ? block.substr(0, block.find('.')) : block, 60);
}

std::string plot_of(const Comparison& comparison) {
  std::vector<std::string> tensors, names;
  for (const auto& tensor : comparison.tensors) tensors.push_back(tensor.name);
  const auto found = recognise(tensors);
  const bool ours = found && found->layout == Layout::kTpgm;
  std::vector<double> sums, counts;
  for (const auto& block : comparison.blocks) {
    TORCH_CHECK(std::isfinite(block.mean_l2), "--plot: the distance of block '", printable(block.name),
                "' is not finite; leave it out with --exclude");
    const auto name = plot_name(block.name, ours);
    auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size()) {
      names.push_back(name);
      sums.push_back(0);
      counts.push_back(0);
    }
    sums[at] += block.mean_l2 * static_cast<double>(block.tensors);
    counts[at] += static_cast<double>(block.tensors);
  }
  TORCH_CHECK(names.size() > 1, "--plot: the checkpoints have ", names.size(),
              " block in common; a plot takes two");
  Series series{"tensors of a block", {}, {}, {}};
  for (size_t i = 0; i < names.size(); ++i) {
    series.x.push_back(static_cast<double>(i));
    series.y.push_back(sums[i] / counts[i]);
  }
  return to_svg({.title = "Distance from the pre-trained weights by depth",
                 .x_label = "block, from input to output",
                 .y_label = "mean ‖Δ‖₂",
                 .x_names = names,
                 .series = {series}});
}

int inspect(const InspectArguments& args) {
  if (args.b.empty()) return inspect_one(args);
  Checkpoint a(args.a, args.key), b(args.b, args.key);
  if (args.keep_prefix) {
    a.restore_prefix();
    b.restore_prefix();
  }
  std::unique_ptr<AtomicFile> plot;
  if (!args.plot.empty()) {
    if (std::filesystem::path(args.plot).extension() != ".svg") {
      throw UsageError(fmt::format("--plot draws SVG: name it *.svg, not '{}'", args.plot));
    }
    plot = std::make_unique<AtomicFile>(args.plot);
  }
  const auto alignment = align_layouts(a, b);
  if (!args.json) {
    print_notes("inspect", a);
    print_notes("inspect", b);
    for (const auto& note : alignment.notes) say_line("inspect", note);
  }
  Comparison comparison;
  {
    Progress progress("tpgm inspect", bytes_of(a) + bytes_of(b));
    comparison = compare_checkpoints(a, b, args.only, args.exclude, progress.callback());
  }
  const std::string svg = plot ? plot_of(comparison) : "";
  sort_tensors(args.sort, comparison.tensors);
  args.json ? print_two_as_json(a, b, comparison) : print_two(a, b, comparison);
  if (plot) {
    plot->write(svg.data(), svg.size());
    plot->commit();
  }
  return 0;
}

}  // namespace

Run configure_inspect(CLI::App& app) {
  auto args = std::make_shared<InspectArguments>();
  add_inspect_options(app, *args);
  return [args] { return inspect(*args); };
}

}  // namespace tpgm::tools

// What happened layer by layer: distances from the anchor, ratios, radii.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tpgm/base/error_text.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/checkpoints/arithmetic.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/report/sections/sections.h"
#include "tpgm/train/model_setup.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostColumns = 64, kMostMapRows = 40, kMostLines = 12, kMostPlots = 3;
constexpr double kStill = 1e-6;  // of the longest way: what moved less did not, but for rounding
constexpr double kWide = 30;     // a spread that takes a logarithmic axis

// Which block each tensor belongs to, from input to output.
class Blocks {
 public:
  // Without a model they are read off the names.
  Blocks(const Classifier* model, const std::vector<std::string>& names) {
    if (model) globs_ = model->block_globs();
    for (const auto& name : names) {
      const std::string block = find(name);
      if (!places_.contains(block)) {
        places_[block] = names_.size();
        names_.push_back(block);
      }
    }
    // As the model has them, where it says so.
    std::vector<std::string> order;
    for (const auto& glob : globs_) {
      if (places_.contains(short_name(glob))) order.push_back(short_name(glob));
    }
    for (const auto& name : names_) {
      if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
    }
    names_ = order;
    for (size_t i = 0; i < names_.size(); ++i) places_[names_[i]] = i;
  }
  const std::vector<std::string>& names() const { return names_; }
  size_t place(const std::string& tensor) const { return places_.at(find(tensor)); }

  // The mean over each block's tensors; NaN of one without any.
  std::vector<double> means(const std::vector<std::string>& tensors,
                            const std::vector<double>& values) const {
    std::vector<double> sums(names_.size()), counts(names_.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      sums[place(tensors[i])] += values[i];
      ++counts[place(tensors[i])];
    }
    for (size_t b = 0; b < sums.size(); ++b) sums[b] = counts[b] > 0 ? sums[b] / counts[b] : kNone;
    return sums;
  }

  static std::string short_name(std::string name) {
    if (name.ends_with(".*")) name.erase(name.size() - 2);
    if (name.starts_with("backbone.")) name.erase(0, std::string("backbone.").size());
    return printable(name);
  }

 private:
  std::string find(const std::string& tensor) const {
    for (const auto& glob : globs_) {
      if (matches(glob, tensor)) return short_name(glob);
    }
    return short_name(block_name(tensor));
  }

  std::vector<std::string> globs_, names_;
  std::map<std::string, size_t> places_;
};

struct Distances {
  std::vector<std::string> tensors;
  std::vector<double> l2;
};

// ‖Δ‖₂ of each parameter that has an anchor.
Distances distances(const Origin& origin, const fs::path& best) {
  const auto tensors = SafetensorsFile(best).tensors();
  const auto fresh = origin.model->unanchored();
  Distances result;
  for (const auto& item : origin.model->named_parameters()) {
    const auto* now = tensors.find(item.key());
    if (!now || now->sizes() != item.value().sizes() || matches_any(fresh, item.key())) continue;
    result.tensors.push_back(item.key());
    result.l2.push_back(l2_distance(*now, item.value()));
  }
  return result;
}

// What a run's radii.json has for figures.
struct Recorded {
  std::vector<std::string> names;
  std::vector<double> at;  // steps of the finish, or of training
  bool finish = false;
  std::vector<std::vector<double>> radii;
  std::vector<double> ratios;  // the last; may be empty

  explicit Recorded(const fs::path& run) {
    const auto history = read_radii(run);
    if (!history) return;
    names = history->names;
    finish = !history->entries.empty() && history->entries.back().radius_step;
    for (const auto& entry : history->entries) {
      if (entry.ratios.size() == names.size()) ratios = entry.ratios;
      if ((finish && !entry.radius_step) || entry.radii.size() != names.size()) continue;
      at.push_back(static_cast<double>(finish ? *entry.radius_step : entry.step));
      radii.push_back(entry.radii);
    }
  }
};

// Takes a logarithmic axis if what moved differs much, and then leaves out what did not; says whether.
bool spread_out(Plot& plot) {
  double longest = 0, shortest = std::numeric_limits<double>::infinity();
  for (const auto& series : plot.series) {
    for (const double y : series.y) longest = std::max(longest, y);
  }
  const double still = longest * kStill;
  for (const auto& series : plot.series) {
    for (const double y : series.y) {
      if (y > still) shortest = std::min(shortest, y);
    }
  }
  if (!(longest > kWide * shortest)) return false;
  plot.log_y = true;
  for (auto& series : plot.series) {
    Series moved{series.name, {}, {}};
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (series.y[i] <= still) continue;
      moved.x.push_back(series.x[i]);
      moved.y.push_back(series.y[i]);
    }
    series = std::move(moved);
  }
  std::erase_if(plot.series, [](const Series& series) { return series.x.empty(); });
  return true;
}

std::vector<double> constant(size_t count, double value) { return std::vector<double>(count, value); }

}  // namespace

const Origin& Origins::of(const FinishedRun& run) {
  // The anchor itself, as prepare_run() makes it before any method sees it.
  TrainOptions options = make_options(without(to_settings(run.options), Trait::kPerRun));
  options.seed = run.options.seed;
  options.epochs = options.warmup_epochs = options.patience = 0;
  options.device = c10::kCPU;
  options.model = model_of_run(options.model, run.path);
  Settings key = only(to_settings(run.options), Trait::kModel | Trait::kData);
  if (options.checkpoint.empty()) key["seed"] = to_text(options.seed);  // then the weights are drawn
  for (const auto& [opened, origin] : opened_) {
    if (opened == key) return origin;
  }
  Origin origin;
  try {
    const auto setup = prepare_run(options, DataUse::kOlderRun);
    origin = {setup.model, setup.data.tests, setup.data.classes, "", setup.data.warnings};
  } catch (const std::exception& error) {
    const auto* torch = dynamic_cast<const c10::Error*>(&error);
    origin.trouble = printable(torch ? error_text(*torch) : error.what(), kMaxPath);
    try {  // without the data there is still the backbone
      if (!options.checkpoint.empty())
        origin.model =
            load_classifier(options.model, options.checkpoint,
                            LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(1)))
                .model;
    } catch (const std::exception&) {  // the first error says what is wrong
    }
  }
  opened_.emplace_back(std::move(key), std::move(origin));
  return opened_.back().second;
}

std::vector<const ReportRow*> main_rows(const RunSet& runs) {
  const auto read = summary_rows(runs);
  std::vector<std::pair<std::pair<RowKind, std::string>, std::vector<size_t>>> groups;
  for (size_t i = 0; i < runs.rows.size(); ++i) {
    const std::pair key(runs.rows[i].kind, runs.rows[i].method());
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == key; });
    if (at == groups.end()) at = groups.insert(groups.end(), {key, {}});
    at->second.push_back(i);
  }
  std::vector<const ReportRow*> rows;
  for (const auto& [key, places] : groups) {
    size_t best = places.front();
    for (const size_t i : places) {
      const auto far = [&](size_t row) {
        return std::abs(method_number(runs.rows[row].run().options, "ratio") - 0.5);
      };
      const bool better =
          key.first == RowKind::kWise ? far(i) + 1e-9 < far(best) : read[i].selection > read[best].selection;
      if (better) best = i;
    }
    rows.push_back(&runs.rows[best]);
  }
  return rows;
}

Section distance_section(const RunSet& runs, Origins& origins) {
  Section section{"How far each layer moved", {}};
  Plot plot{.title = "Distance from the pre-trained weights by depth",
            .x_label = "block, from input to output",
            .y_label = "mean ‖Δ‖₂",
            .series = {}};
  std::vector<std::string> names, trouble;
  std::string no_head;  // why the head is left out
  for (const auto* row : main_rows(runs)) {
    if (row->is_anchor()) continue;
    const auto& origin = origins.of(row->run());
    const fs::path best = weights_of(row->run().path);
    if (!origin.model || !fs::exists(best)) {
      trouble.push_back(origin.model ? fmt::format("{}: there is no '{}' any more", row->name, best.string())
                                     : fmt::format("{}: {}", row->name, origin.trouble));
      continue;
    }
    const auto moved = distances(origin, best);
    const Blocks blocks(origin.model.get(), moved.tensors);
    if (names.empty()) names = blocks.names();
    if (blocks.names() != names) {
      trouble.push_back(fmt::format("{}: it has other blocks than the first", row->name));
      continue;
    }
    if (!origin.model->unanchored().empty())
      no_head = origin.trouble.empty() ? "it is fresh" : origin.trouble;
    Series series{row->name, {}, {}};
    const auto means = blocks.means(moved.tensors, moved.l2);
    for (size_t i = 0; i < means.size(); ++i) {
      if (!std::isfinite(means[i])) continue;
      series.x.push_back(static_cast<double>(i));
      series.y.push_back(means[i]);
    }
    if (!series.x.empty() && plot.series.size() < kMostLines) plot.series.push_back(std::move(series));
  }
  if (!plot.series.empty()) {
    plot.x_names = names;
    const bool left_out = spread_out(plot);
    section.blocks.emplace_back(to_figure(
        "distance",
        fmt::format("For each block the mean over its tensors of ‖Δ‖₂, the distance of a tensor from the one "
                    "that was pre-trained, as in the paper's figure and 'tpgm inspect'.{}{} One run of each "
                    "method, the first seed.",
                    left_out ? " The scale is logarithmic, and what did not move is left out." : "",
                    no_head.empty() ? "" : fmt::format(" The head is left out: {}.", no_head)),
        plot));
  }
  for (const auto& text : trouble)
    section.blocks.emplace_back(Paragraph{fmt::format("No distance of {}.", text)});
  if (section.blocks.empty())
    section.blocks.emplace_back(Paragraph{"No run moved away from the pre-trained weights."});
  return section;
}

Section ratio_section(const RunSet& runs, Origins& origins) {
  Section section{"How much of each layer's change is kept", {}};
  std::vector<std::pair<const ReportRow*, Recorded>> found;
  for (const auto& row : runs.rows) {
    Recorded recorded(row.run().path);
    if (!recorded.ratios.empty()) found.emplace_back(&row, std::move(recorded));
  }
  const size_t with_ratios = found.size();
  if (!found.empty()) {
    const auto first = found.front().second.names;
    std::erase_if(found, [&](const auto& each) { return each.second.names != first; });
  }
  const size_t others = with_ratios - found.size();  // of another model, or with other exclusions
  if (found.empty()) {
    section.blocks.emplace_back(Paragraph{"No method here has a ratio for each layer (TPGM and FTP have)."});
    return section;
  }
  const size_t all = found.size();
  if (all > kMostMapRows) found.erase(found.begin() + kMostMapRows, found.end());
  const auto& names = found.front().second.names;
  const Blocks blocks(origins.of(found.front().first->run()).model.get(), names);
  const bool by_tensor = names.size() <= kMostColumns;
  HeatMap map{.title = "Ratio of each layer",
              .x_label = by_tensor ? "tensor, from input to output" : "block, from input to output",
              .y_label = "run",
              .value_label = "ratio α",
              .columns = {},
              .rows = {},
              .values = {},
              .low = 0,
              .high = 1};
  if (by_tensor) {
    for (const auto& name : names) map.columns.push_back(Blocks::short_name(name));
  } else {
    map.columns = blocks.names();
  }
  for (const auto& [row, recorded] : found) {
    map.rows.push_back(row->name);
    map.values.push_back(by_tensor ? recorded.ratios : blocks.means(names, recorded.ratios));
  }
  bool wise = false;
  for (const auto* row : main_rows(runs)) {
    if (row->kind != RowKind::kWise) continue;
    wise = true;
    map.rows.push_back(row->name);
    map.values.push_back(constant(map.columns.size(), method_number(row->run().options, "ratio")));
  }
  std::string caption = fmt::format(
      "What a layer's displacement from the pre-trained weights was last multiplied by: 0 is the pre-trained "
      "layer, 1 the layer as it was trained.{}",
      by_tensor ? "" : " Of a block the mean over its tensors.");
  if (wise) caption += " WISE, which has one ratio for all layers, is there for comparison.";
  if (all > kMostMapRows) caption += fmt::format(" Of {} runs the first {}.", all, kMostMapRows);
  if (others > 0) caption += fmt::format(" Runs with other tensors are left out: {}.", others);
  section.blocks.emplace_back(to_figure("ratios", caption, map));
  return section;
}

Section radius_section(const RunSet& runs, Origins& origins) {
  Section section{"Radii while they are learned", {}};
  std::vector<std::pair<const ReportRow*, Recorded>> found;
  for (const auto* row : main_rows(runs)) {
    Recorded recorded(row->run().path);
    if (recorded.radii.size() > 1) found.emplace_back(row, std::move(recorded));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    const auto is_tpgm = [](const ReportRow& row) {
      return row.kind == RowKind::kTpgm || row.kind == RowKind::kTpgmC;
    };
    return is_tpgm(*a.first) > is_tpgm(*b.first);
  });
  if (found.size() > kMostPlots) found.erase(found.begin() + kMostPlots, found.end());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto& [row, recorded] = found[i];
    const auto alike =
        std::count_if(runs.rows.begin(), runs.rows.end(), [kind = row->kind, &row](const auto& other) {
          return other.kind == kind && other.method() == row->method();
        });
    const Blocks blocks(origins.of(row->run()).model.get(), recorded.names);
    const size_t stride = (blocks.names().size() + kMostLines - 1) / kMostLines;
    Plot plot{.title = fmt::format("Radii of {}", row->name),
              .x_label = recorded.finish ? "radius step" : "training step",
              .y_label = "mean radius γ",
              .series = {}};
    for (size_t b = 0; b < blocks.names().size(); b += stride) {
      Series series{blocks.names()[b], {}, {}};
      for (size_t t = 0; t < recorded.at.size(); ++t) {
        const double mean = blocks.means(recorded.names, recorded.radii[t])[b];
        if (!std::isfinite(mean)) continue;
        series.x.push_back(recorded.at[t]);
        series.y.push_back(mean);
      }
      plot.series.push_back(std::move(series));
    }
    section.blocks.emplace_back(to_figure(
        fmt::format("radii-{}", i + 1),
        fmt::format(
            "The mean over each block's tensors{}.{}{}",
            recorded.finish ? ", while they are learned at the end" : "",
            stride > 1 ? fmt::format(" Shown is every {} of {} blocks.",
                                     stride == 2   ? "second"
                                     : stride == 3 ? "third"
                                                   : fmt::format("{}th", stride),
                                     blocks.names().size())
                       : "",
            alike > 1 ? fmt::format(" Shown is the best of {} such runs on selection data.", alike) : ""),
        plot));
  }
  if (found.empty())
    section.blocks.emplace_back(Paragraph{
        "No run recorded radii over time. Runs of TPGM and FTP record them; older runs with every = end "
        "kept only the last."});
  return section;
}

}  // namespace tpgm

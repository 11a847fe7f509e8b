// The ID–OOD plane, and training over epochs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "tpgm/base/untrusted.h"
#include "tpgm/report/sections/sections.h"

namespace tpgm {
namespace {

constexpr size_t kMostCurves = 14;  // that a plot can tell apart

// Rows that differ in one numeric setting, by its value.
struct Curve {
  std::string key;
  std::vector<const ReportRow*> rows;
};

double value_of(const ReportRow& row, const std::string& key) {
  const auto settings = identity_settings(row.run().options);
  const auto found = settings.find(key);
  return found == settings.end() ? std::numeric_limits<double>::quiet_NaN() : to_number(found->second);
}

// The longest curve among the rows of a method; of equals the one of the method's own setting.
Curve longest(const std::vector<const ReportRow*>& rows) {
  Curve best;
  std::set<std::string> keys;
  for (const auto* row : rows) {
    for (const auto& [key, value] : identity_settings(row->run().options)) {
      if (std::isfinite(to_number(value))) keys.insert(key);
    }
  }
  std::vector<std::string> order = {"mu", "ratio"};
  for (const auto& key : keys) order.push_back(key);
  for (const auto& key : order) {
    std::map<Settings, std::vector<const ReportRow*>> alike;
    for (const auto* row : rows) {
      auto rest = identity_settings(row->run().options);
      if (!std::isfinite(value_of(*row, key))) continue;
      rest.erase(key);
      alike[rest].push_back(row);
    }
    for (const auto& [rest, group] : alike) {
      if (group.size() > 1 && group.size() > best.rows.size()) best = {key, group};
    }
  }
  std::stable_sort(best.rows.begin(), best.rows.end(), [&](const auto* a, const auto* b) {
    return value_of(*a, best.key) < value_of(*b, best.key);
  });
  return best;
}

// All curves of all methods; `rest` gets the rows that are in none.
std::vector<Curve> curves_of(const RunSet& runs, std::vector<const ReportRow*>& rest) {
  std::vector<std::string> methods;
  std::map<std::string, std::vector<const ReportRow*>> of_method;
  for (const auto& row : runs.rows) {
    if (row.is_anchor()) {
      rest.push_back(&row);
      continue;
    }
    if (!of_method.contains(row.method())) methods.push_back(row.method());
    of_method[row.method()].push_back(&row);
  }
  std::vector<Curve> curves;
  for (const auto& method : methods) {
    auto& left = of_method[method];
    while (true) {
      const Curve curve = longest(left);
      if (curve.rows.empty()) break;
      std::erase_if(left, [&](const auto* row) {
        return std::find(curve.rows.begin(), curve.rows.end(), row) != curve.rows.end();
      });
      curves.push_back(curve);
    }
    rest.insert(rest.end(), left.begin(), left.end());
  }
  return curves;
}

std::string short_name(const Curve& curve) {
  const auto& row = *curve.rows.front();
  if (row.kind == RowKind::kWise) return "WISE";
  if (curve.key == "mu" && (row.kind == RowKind::kTpgm || row.kind == RowKind::kTpgmC)) return "TPGM-C";
  // "FT lr=0.001": what they have in common.
  return row.name.substr(0, row.name.find(' '));
}

bool is_tpgm_of(const Curve& curve, const ReportRow& row) {
  return curve.key == "mu" && row.kind == RowKind::kTpgm;
}

std::string point_label(const Curve& curve, const ReportRow& row) {
  if (is_tpgm_of(curve, row)) return "";  // it has a point of its own
  const double value = value_of(row, curve.key);
  if (row.kind == RowKind::kWise && curve.key == "ratio") return fmt::format("{:g}", value);
  return fmt::format("{}={:g}", curve.key == "mu" ? "μ" : curve.key, value);
}

// Where rows lie in the plane.
class Plane {
 public:
  explicit Plane(const RunSet& runs) : rows_(summary_rows(runs)), first_(runs.rows.data()) {}
  // Rows of a curve have no bars, which would hide it.
  void add(Series& series, const ReportRow& row, const std::string& label, bool bars) {
    const auto& read = rows_[static_cast<size_t>(&row - first_)];
    series.x.push_back(average_of(read, true).mean);
    series.y.push_back(average_of(read, false).mean);
    series.labels.push_back(label);
    if (!bars) return;
    known_ = known_ && row.hits.known();
    series.spread_x.push_back(interval_of(read, true));
    series.spread.push_back(interval_of(read, false));
  }

  // What the bars are.
  const char* caption() const {
    return known_
               ? " Bars are 95 % intervals, from the images and the seeds. All rows have the same images, so "
                 "that a "
                 "difference of two rows is more certain than their bars; the table marks those from the "
                 "reference."
               : " Bars are two standard errors, from the seeds or, for one seed, from the number of images.";
  }

 private:
  // Half of the 95 % interval, or two standard errors where the hits are not known.
  static double interval_of(const SummaryRow& row, bool id) {
    std::vector<std::string> tests;
    for (const auto& score : row.scores) {
      if (score.id == id) tests.push_back(score.test);
    }
    const auto accuracy = accuracy_of(row.hits, tests);
    return accuracy ? accuracy->interval() : 2 * average_of(row, id).error;
  }

  std::vector<SummaryRow> rows_;
  const ReportRow* first_;
  bool known_ = true;  // the hits of all rows with bars
};

// The fine-tuned model that WISE's curve ends in: the run it started from, or one trained as it was.
const ReportRow* end_of(const Curve& wise, const RunSet& runs) {
  const auto& options = wise.rows.front()->run().options;
  for (const auto& row : runs.rows) {
    if (row.kind != RowKind::kFt) continue;
    if (!options.weights.empty()) {
      std::error_code ignored;
      const std::filesystem::path path = options.weights;
      for (const auto& run : row.runs) {
        if (std::filesystem::equivalent(run.path, is_run(path) ? path : path.parent_path(), ignored))
          return &row;
      }
      continue;
    }
    bool same = true;
    const auto theirs = identity_settings(row.run().options);
    for (const auto& [key, value] : identity_settings(options)) {
      const auto found = theirs.find(key);
      same = same && (key == "method" || found == theirs.end() || found->second == value);
    }
    if (same) return &row;
  }
  return nullptr;
}

const ReportRow* begin_of(const Curve& wise, const RunSet& runs) {
  const auto& options = wise.rows.front()->run().options;
  if (options.head.is(HeadSource::Kind::kFresh))
    return nullptr;  // WISE leaves a fresh head as it was trained
  for (const auto& row : runs.rows) {
    const auto& own = row.run().options;
    if (row.is_anchor() && own.checkpoint == options.checkpoint && own.head == options.head) return &row;
  }
  return nullptr;
}

void add_finite(std::vector<Series>& all, const std::string& name, const std::vector<EpochRecord>& epochs,
                double EpochRecord::*value) {
  Series series{name, {}, {}};
  for (const auto& epoch : epochs) {
    if (!std::isfinite(epoch.*value)) continue;
    series.x.push_back(epoch.epoch);
    series.y.push_back(epoch.*value);
  }
  if (!series.x.empty()) all.push_back(std::move(series));
}

}  // namespace

Section plane_section(const RunSet& runs) {
  Section section{"Summary", {}};
  const auto& scores = runs.rows.front().scores;
  for (const bool id : {true, false}) {
    if (std::none_of(scores.begin(), scores.end(), [&](const Score& score) { return score.id == id; })) {
      section.blocks.emplace_back(Paragraph{fmt::format("No test counts as {}, so there is no plane to draw.",
                                                        id ? "in-distribution" : "out-of-distribution")});
      return section;
    }
  }
  std::vector<const ReportRow*> rest;
  const auto curves = curves_of(runs, rest);
  // Where a curve of TPGM-C begins stands TPGM, a method of its own.
  for (const auto& curve : curves) {
    for (const auto* row : curve.rows) {
      if (is_tpgm_of(curve, *row)) rest.push_back(row);
    }
  }
  // Before the others what curves begin and end in: first come the marks that are seen best.
  std::stable_partition(rest.begin(), rest.end(),
                        [](const auto* row) { return row->kind != RowKind::kOther; });
  Plane plane(runs);
  Plot plot{.title = "ID and OOD accuracy",
            .x_label = "ID accuracy (%)",
            .y_label = "OOD average (%)",
            .height = 400,
            .series = {}};
  std::vector<std::string> ways;
  for (const auto& curve : curves) {
    const std::string name = short_name(curve);
    Series series{name, {}, {}};
    const bool wise = curve.rows.front()->kind == RowKind::kWise && curve.key == "ratio";
    const ReportRow *begin = wise ? begin_of(curve, runs) : nullptr,
                    *end = wise ? end_of(curve, runs) : nullptr;
    if (begin) plane.add(series, *begin, "", false);
    for (const auto* row : curve.rows) plane.add(series, *row, point_label(curve, *row), false);
    if (end) plane.add(series, *end, "", false);
    plot.series.push_back(std::move(series));
    ways.push_back(fmt::format("{} along {} from {:g} to {:g}", name, curve.key == "mu" ? "μ" : curve.key,
                               value_of(*curve.rows.front(), curve.key),
                               value_of(*curve.rows.back(), curve.key)));
    if (is_tpgm_of(curve, *curve.rows.front())) ways.back() += ", beginning with TPGM";
    if (begin || end)
      ways.back() +=
          fmt::format(", through {}", begin && end ? fmt::format("{} and {}", begin->name, end->name)
                                      : begin      ? begin->name
                                                   : end->name);
  }
  for (const auto* row : rest) {
    Series series{row->name, {}, {}};
    series.line = false;
    plane.add(series, *row, row->name, true);
    plot.series.push_back(std::move(series));
  }
  std::string caption = "Up and to the right is better.";
  if (!ways.empty()) caption += fmt::format(" Lines join runs of one method: {}.", fmt::join(ways, "; "));
  if (!rest.empty()) caption += plane.caption();
  section.blocks.emplace_back(to_figure("plane", caption, plot));
  return section;
}

Section training_section(const RunSet& runs) {
  Section section{"Training", {}};
  // Runs that were trained alike (WISE does nothing before the end) are one line.
  std::vector<std::pair<EpochHistory, std::vector<std::string>>> trained;
  for (const auto& row : runs.rows) {
    const auto history = read_epochs(row.run().path);
    if (history.epochs.empty()) continue;
    const auto same = std::find_if(trained.begin(), trained.end(),
                                   [&](const auto& each) { return each.first.csv == history.csv; });
    if (same == trained.end()) {
      trained.push_back({history, {row.name}});
    } else {
      same->second.push_back(row.name);
    }
  }
  if (trained.empty()) {
    section.blocks.emplace_back(Paragraph{"None of the runs trained for an epoch, so there are no curves."});
    return section;
  }
  Plot loss{.title = "Training loss", .x_label = "epoch", .y_label = "loss", .series = {}};
  Plot accuracy{
      .title = "Accuracy on selection data", .x_label = "epoch", .y_label = "accuracy (%)", .series = {}};
  for (size_t i = 0; i < std::min(trained.size(), kMostCurves); ++i) {
    const auto& epochs = trained[i].first.epochs;
    const std::string name = fmt::format("{}", fmt::join(trained[i].second, ", "));
    add_finite(loss.series, name, epochs, &EpochRecord::train_loss);
    add_finite(accuracy.series, name, epochs, &EpochRecord::selection_accuracy);
  }
  std::string note = " The first seed of each.";
  if (trained.size() > kMostCurves)
    note += fmt::format(" Of {} runs that were trained, the first {}.", trained.size(), kMostCurves);
  if (!loss.series.empty())
    section.blocks.emplace_back(
        to_figure("training-loss", "Mean over the batches of an epoch, penalties left out." + note, loss));
  if (!accuracy.series.empty()) {
    section.blocks.emplace_back(to_figure(
        "selection-accuracy",
        "After each epoch, before the final projection of a method. The best epoch is what is kept." + note,
        accuracy));
  } else {
    section.blocks.emplace_back(Paragraph{"There were no selection data to score epochs on."});
  }
  return section;
}

}  // namespace tpgm

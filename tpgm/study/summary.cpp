// Sentences from numbers.
#include "tpgm/study/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tpgm {
namespace {

size_t seeds_of(const SummaryRow& row) { return row.scores.empty() ? 0 : row.scores.front().values.size(); }

std::vector<std::string> tests_of(const SummaryRow& row, bool id) {
  std::vector<std::string> tests;
  for (const auto& score : row.scores) {
    if (score.id == id) tests.push_back(score.test);
  }
  return tests;
}

// What is noise in a difference of two rows: the 95 % interval of paired_difference() where it is known for all
// rows, else two standard errors.
class Noise {
 public:
  explicit Noise(const std::vector<SummaryRow>& rows) {
    for (const auto& row : rows) {
      most_ = std::max(most_, seeds_of(row));
      least_ = std::min(least_, seeds_of(row));
      for (const bool id : {true, false}) {
        const auto average = average_of(row, id);
        if (std::isfinite(average.mean)) error_[id] = std::max(error_[id], average.error);
        const auto tests = tests_of(row, id);
        paired_ = paired_ && (tests.empty() || paired_difference(rows.front().hits, row.hits, tests));
      }
    }
  }
  // Half of the interval of the difference, or its two standard errors; those of one seed are those of the least
  // certain rows, one level for one sentence.
  double level(const SummaryRow& a, const SummaryRow& b, bool id) const {
    if (paired_) {
      if (const auto paired = paired_difference(a.hits, b.hits, tests_of(a, id))) return paired->interval();
    }
    return most_ > 1 ? 2 * std::hypot(average_of(a, id).error, average_of(b, id).error) : level(id);
  }
  std::string sentence() const {
    if (paired_ && most_ > 1)
      return fmt::format(
          "Noise is what lies within the 95 % interval of a difference on the same images, over {} "
          "seeds{}.",
          most_, least_ == 1 ? " (some rows have one)" : "");
    if (paired_)
      return "Noise is what lies within the 95 % interval of a difference on the same images; other seeds "
             "would add "
             "to it.";
    if (most_ > 1)
      return fmt::format(
          "Noise is below two standard errors, from the spread over {} seeds{}; other test images would "
          "add to it.",
          most_, least_ == 1 ? " (of rows with one, from the number of images)" : "");
    std::vector<std::string> levels;
    if (error_[true] > 0) levels.push_back(fmt::format("{:.1f} points in", level(true)));
    if (error_[false] > 0)
      levels.push_back(fmt::format("{:.1f} {}out of", level(false), levels.empty() ? "points " : ""));
    if (levels.empty()) return "";
    if (levels.size() > 1 && levels[0].substr(0, 4) == levels[1].substr(0, 4))
      return fmt::format("One seed: differences below about {:.1f} points are noise.", level(true));
    return fmt::format("One seed: differences below about {} distribution are noise.",
                       fmt::join(levels, " and "));
  }

 private:
  double level(bool id) const { return 2 * std::sqrt(2.0) * error_[id]; }

  bool paired_ = true;
  size_t most_ = 0, least_ = std::numeric_limits<size_t>::max();
  std::array<double, 2> error_{};  // the largest; out of distribution and in it
};

// A row's average on one kind of tests beside another's.
struct Change {
  bool id = true;
  double before = 0, after = 0, noise = 0;

  double points() const { return after - before; }
  bool known() const { return std::isfinite(points()); }
  // As printed: 0.0 is no difference.
  bool none() const { return std::abs(points()) < 0.05; }
  bool is_noise() const { return !none() && std::abs(points()) < noise; }
  bool flat() const { return none() || is_noise(); }
  bool up() const { return points() > 0; }
  std::string size() const { return fmt::format("{:.1f}", std::abs(points())); }
};

// The differences in distribution and out of distribution, as far as there are tests.
std::vector<Change> differences(const SummaryRow& from, const SummaryRow& to, const Noise& noise) {
  std::vector<Change> found;
  for (const bool id : {true, false}) {
    const Average a = average_of(from, id), b = average_of(to, id);
    const Change difference{id, a.mean, b.mean, 0};
    if (!difference.known()) continue;
    found.push_back(difference);
    found.back().noise = noise.level(from, to, id);
  }
  return found;
}

// "in distribution", and behind that "out of it".
std::string where(bool id, bool second) {
  return id ? "in distribution" : second ? "out of it" : "out of distribution";
}

// "gained 1.8 points in distribution (94.5 → 96.3 %) and lost 4.4 out of it (71.8 → 67.4 %)".
std::string changed(const std::vector<Change>& all) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& d = all[i];
    const bool pointed = i > 0 && !all[0].flat();  // the word is there already
    text += i > 0 ? " and " : "";
    text += d.none() ? "changed nothing"
            : d.is_noise()
                ? "changed nothing beyond noise"
                : fmt::format("{} {}{}", d.up() ? "gained" : "lost", d.size(), pointed ? "" : " points");
    text += fmt::format(" {} ({:.1f} → {:.1f} %)", where(d.id, i > 0), d.before, d.after);
  }
  return text;
}

// "96.9 % and 71.2 %"; in full if the text has not named the tests yet.
std::string accuracies(const SummaryRow& row, bool in_full) {
  std::vector<std::string> parts;
  for (const bool id : {true, false}) {
    if (const double mean = average_of(row, id).mean; std::isfinite(mean))
      parts.push_back(
          fmt::format("{:.1f} %{}", mean, in_full ? " " + where(id, !parts.empty()) : std::string()));
  }
  return fmt::format("{}", fmt::join(parts, " and "));
}

// "0.6 and 3.8 points above FT", "0.6 points above FT and level with it within noise".
std::string compared_text(const std::vector<Change>& all, const std::string& name) {
  const auto side = [](const Change& d) { return d.up() ? "above" : "below"; };
  const auto alone = [&](const Change& d, const std::string& other) {
    return d.flat() ? fmt::format("level with {}{}", other, d.is_noise() ? " within noise" : "")
                    : fmt::format("{} points {} {}", d.size(), side(d), other);
  };
  if (all.size() < 2) return all.empty() ? "" : alone(all[0], name);
  const auto &in = all[0], &out = all[1];
  if (in.flat() && out.flat())
    return fmt::format("level with {}{}", name, in.is_noise() || out.is_noise() ? " within noise" : "");
  if (in.flat() || out.flat()) return fmt::format("{} and {}", alone(in, name), alone(out, "it"));
  return in.up() == out.up()
             ? fmt::format("{} and {} points {} {}", in.size(), out.size(), side(out), name)
             : fmt::format("{} points {} and {} {} {}", in.size(), side(in), out.size(), side(out), name);
}

// The best in distribution or out of it; null without such tests.
const SummaryRow* best(const std::vector<SummaryRow>& rows, bool id) {
  const SummaryRow* found = nullptr;
  for (const auto& row : rows) {
    const double mean = average_of(row, id).mean;
    if (std::isfinite(mean) && (!found || mean > average_of(*found, id).mean)) found = &row;
  }
  return found;
}

// A point of WISE's curve, and why that.
struct Rival {
  const SummaryRow* row = nullptr;
  std::string which;
};

// The one to stand beside `ours`: of those that are not worse in distribution the best out of it, so that a
// curve is not judged by a point that it has better ones beside; without any, the nearest.
Rival rival(const std::vector<SummaryRow>& rows, const SummaryRow& ours) {
  const double home = average_of(ours, true).mean;
  const auto in = [](const SummaryRow& row) { return average_of(row, true).mean; };
  const auto out = [](const SummaryRow& row) { return average_of(row, false).mean; };
  const bool both = std::isfinite(home) && std::isfinite(out(ours));
  const SummaryRow *above = nullptr, *nearest = nullptr;
  size_t count = 0;
  for (const auto& row : rows) {
    if (row.kind != RowKind::kWise) continue;
    ++count;
    if (both && in(row) > home - 0.05 && (!above || out(row) > out(*above))) above = &row;
    const auto far = [&](const SummaryRow& other) {
      return std::isfinite(home) ? std::abs(in(other)-home) : std::abs(out(other) - out(ours));
    };
    if (!nearest || far(row) < far(*nearest)) nearest = &row;
  }
  if (count < 2) return {nearest, ""};
  if (above) return {above, "The best of WISE that is no lower in distribution"};
  return {nearest, both ? "The nearest of WISE in distribution" : "The nearest of WISE"};
}

// "Best out of distribution is A with 72.8 % (95.4 % in it); best in it is B with 97.1 %."
std::string best_sentence(const std::vector<SummaryRow>& rows, const Noise& noise) {
  const SummaryRow *home = best(rows, true), *away = best(rows, false);
  if (!home && !away) return "";
  // "; 2 others within noise", in brackets of its own where there are none.
  const auto near = [&](const SummaryRow& top, bool id, bool brackets = true) {
    const auto count = std::count_if(rows.begin(), rows.end(), [&](const SummaryRow& row) {
      const double below = average_of(top, id).mean - average_of(row, id).mean;
      return &row != &top && below <= noise.level(row, top, id);
    });
    const auto text = fmt::format("{} other{} within noise", count, count == 1 ? "" : "s");
    return count == 0 ? std::string() : brackets ? fmt::format(" ({})", text) : "; " + text;
  };
  if (!home || !away) {
    const SummaryRow& only = home ? *home : *away;
    return fmt::format("Best is {} with {:.1f} %{}.", only.name, average_of(only, home != nullptr).mean,
                       near(only, home != nullptr));
  }
  const double in = average_of(*away, true).mean, out = average_of(*away, false).mean;
  const double most = average_of(*home, true).mean;
  if (most - in < 0.05)
    return fmt::format("Best in both is {} with {:.1f} %{} and {:.1f} %{}.", away->name, in,
                       near(*away, true), out, near(*away, false));
  return fmt::format(
      "Best out of distribution is {} with {:.1f} % ({:.1f} % in it{}); best in it is {} with {:.1f} %{}.",
      away->name, out, in, near(*away, false, false), home->name, most, near(*home, true));
}

}  // namespace

Average average_of(const SummaryRow& row, bool id) {
  std::vector<size_t> tests;
  for (size_t i = 0; i < row.scores.size(); ++i) {
    if (row.scores[i].id == id) tests.push_back(i);
  }
  if (tests.empty()) return {};
  const auto number = static_cast<double>(tests.size());
  Score average{"", id, {}};  // of each seed
  for (size_t seed = 0; seed < seeds_of(row); ++seed) {
    double sum = 0;
    for (const size_t i : tests) sum += row.scores[i].values[seed];
    average.values.push_back(sum / number);
  }
  if (average.values.size() > 1)
    return {average.mean(), average.deviation() / std::sqrt(static_cast<double>(average.values.size()))};
  double variance = 0;
  for (const size_t i : tests) {
    const double p = row.scores[i].mean() / 100;
    if (i < row.images.size() && row.images[i] > 0)
      variance += p * (1 - p) / static_cast<double>(row.images[i]);
  }
  return {average.mean(), 100 * std::sqrt(variance) / number};
}

const SummaryRow* chosen(const std::vector<SummaryRow>& rows, RowKind kind) {
  const SummaryRow* found = nullptr;
  for (const auto& row : rows) {
    if (row.kind == kind && (!found || row.selection > found->selection)) found = &row;
  }
  return found;
}

std::string summary(const std::vector<SummaryRow>& all) {
  std::vector<SummaryRow> rows;
  for (const auto& row : all) {
    if (!row.scores.empty()) rows.push_back(row);
  }
  if (rows.size() < 2) return "";
  const Noise noise(rows);
  std::vector<std::string> sentences;

  const SummaryRow* before = chosen(rows, RowKind::kZeroShot);
  if (!before) before = chosen(rows, RowKind::kPretrained);
  const SummaryRow* ft = chosen(rows, RowKind::kFt);
  if (before && ft)
    sentences.push_back(fmt::format("Fine-tuning{} {}.", ft->name == "FT" ? "" : " (" + ft->name + ")",
                                    changed(differences(*before, *ft, noise))));

  if (const SummaryRow* random = before ? nullptr : chosen(rows, RowKind::kRandomHead))
    sentences.push_back(
        fmt::format("{} is the pre-trained model under a head that was not trained, so fine-tuning is not "
                    "compared with it.",
                    random->name));

  const SummaryRow* last = nullptr;  // of ours
  for (const RowKind kind : {RowKind::kTpgm, RowKind::kTpgmC}) {
    const SummaryRow* ours = chosen(rows, kind);
    if (!ours) continue;
    last = ours;
    auto sentence = fmt::format("{} has {}", ours->name, accuracies(*ours, sentences.empty()));
    if (ft) sentence += fmt::format(": {}", compared_text(differences(*ft, *ours, noise), ft->name));
    sentences.push_back(sentence + ".");
  }
  if (last) {
    const auto [wise, which] = rival(rows, *last);
    if (wise)
      sentences.push_back(fmt::format(
          "{} has {}: {}.", which.empty() ? wise->name : fmt::format("{}, {},", which, wise->name),
          accuracies(*wise, false), compared_text(differences(*last, *wise, noise), last->name)));
  }
  for (const auto& sentence : {best_sentence(rows, noise), noise.sentence()}) {
    if (!sentence.empty()) sentences.push_back(sentence);
  }
  return fmt::format("{}", fmt::join(sentences, " "));
}

}  // namespace tpgm

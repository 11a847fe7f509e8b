#include "tpgm/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tpgm/report/svg.h"
#include "tpgm/report/table.h"

namespace tpgm {
namespace {

using svg::kLine;
using svg::kMargin;
using svg::kTitle;
using svg::kTitleLine;

constexpr double kLabel = 12;      // size of the text beside points
constexpr double kMark = 4.2;      // half of a mark
constexpr size_t kMarked = 40;     // a line of more points is marked at some of them
constexpr size_t kDescribed = 16;  // a series of more points is described by its extremes
constexpr double kKey = 32;        // a legend's line and mark
constexpr double kLegendLine = 21;
constexpr double kSame = 2;  // pixels: of lines that are no further apart only one would be seen
constexpr double kDash = 7;  // of lines that share a way

// Okabe and Ito's palette, in an order that starts with the strongest contrasts; the last is the color of
// text, their black. Yellow is left out: it cannot be seen on white.
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73",     "#cc79a7",
                              "#e69f00", "#56b4e9", "currentColor"};
// Around the origin, of about the same area.
constexpr std::array kShapes{
    "M-3.9 0a3.9 3.9 0 1 0 7.8 0a3.9 3.9 0 1 0 -7.8 0z",                                        // disc
    "M-3.5 -3.5h7v7h-7z",                                                                       // square
    "M0 -4.6L4.4 3.4H-4.4z",                                                                    // up
    "M0 -5L5 0L0 5L-5 0z",                                                                      // diamond
    "M0 4.6L4.4 -3.4H-4.4z",                                                                    // down
    "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",                                           // plus
    "M0 -5.4L1.5 -1.7L5.2 -1.7L2.3 0.7L3.3 4.5L0 2.3L-3.3 4.5L-2.3 0.7L-5.2 -1.7L-1.5 -1.7z"};  // star

// What tells a series from the others. Shape and filling suffice, for readers who see no colors.
struct Look {
  const char* colour;
  const char* shape;
  bool hollow;

  explicit Look(size_t series)
      : colour(kColours[(series + 3 * (series / kShapes.size())) % kColours.size()]),
        shape(kShapes[series % kShapes.size()]),
        hollow(series / kShapes.size() % 2 == 1) {}

  std::string mark(double x, double y, const std::string& title = {}) const {
    const auto fill = hollow ? fmt::format("class=\"page\" stroke=\"{}\" stroke-width=\"1.6\"", colour)
                             : fmt::format("fill=\"{}\"", colour);
    const auto start =
        fmt::format("<path {} d=\"{}\" transform=\"translate({:.1f} {:.1f})\"", fill, shape, x, y);
    return title.empty() ? start + "/>"
                         : fmt::format("{}><title>{}</title></path>", start, svg::escaped(title));
  }
};

struct Point {
  double x, y;
};

struct Box {
  double left, top, right, bottom;

  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  bool holds(Point point) const {
    return point.x >= left && point.x <= right && point.y >= top && point.y <= bottom;
  }
  // Whether the way from one point to the other goes through it.
  bool crossed(Point from, Point to) const {
    // What is left of the way, as shares of it, once each side has cut off what lies beyond it.
    double begin = 0, end = 1;
    const auto cut = [&](double start, double way, double low, double high) {
      if (way == 0) return start > low && start < high;
      begin = std::max(begin, std::min((low - start) / way, (high - start) / way));
      end = std::min(end, std::max((low - start) / way, (high - start) / way));
      return begin < end;
    };
    return cut(from.x, to.x - from.x, left, right) && cut(from.y, to.y - from.y, top, bottom);
  }
  bool within(const Box& other) const {
    return left >= other.left && right <= other.right && top >= other.top && bottom <= other.bottom;
  }
};

// One axis: where a value lies, and which values get a tick.
struct Axis {
  double low, high;
  bool log;
  std::vector<double> ticks;

  double share(double value) const {
    const auto at = [this](double x) { return log ? std::log10(x) : x; };
    return (at(value) - at(low)) / (at(high) - at(low));
  }
};

Axis linear_axis(double low, double high, double count) {
  // The smallest range that has ticks, so that rounding of a constant does not fill the frame.
  const double least = std::max({std::abs(low), std::abs(high), 1e-300}) * 1e-9;
  if (high - low < least) {
    // A share of the value, but of per cents a point: 78 % lies not between 40 and 120.
    const double share = std::abs(low) / 2, half = low == 0      ? 0.5
                                                   : share <= 50 ? std::min(share, 1.0)
                                                                 : share;
    low -= half;
    high += half;
  }
  const double pad = (high - low) * 0.04;
  return {low - pad, high + pad, false, svg::linear_ticks(low - pad, high + pad, count)};
}

// Ticks at the values themselves where they are few, else at 1, 2 and 5 times powers of ten, else at these.
Axis log_axis(std::vector<double> values, bool at_values, double count) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const double pad = std::max(std::pow(values.back() / values.front(), 0.04), 1.05);
  Axis axis{values.front() / pad, values.back() * pad, true, {}};
  if (at_values && values.size() <= 10) {
    axis.ticks = values;
    return axis;
  }
  const double first = std::floor(std::log10(axis.low)), last = std::ceil(std::log10(axis.high));
  const auto add = [&axis](double tick) {
    if (tick >= axis.low && tick <= axis.high) axis.ticks.push_back(tick);
  };
  for (double power = first; power <= last; ++power) {
    for (const double times : {1, 2, 5}) add(times * std::pow(10, power));
  }
  if (static_cast<double>(axis.ticks.size()) > count + 3) {
    axis.ticks.clear();
    const double every = std::max(1.0, std::ceil((last - first) / (count + 3)));
    for (double power = first; power <= last; power += every) add(std::pow(10, power));
  }
  if (axis.ticks.size() < 2) axis.ticks = svg::linear_ticks(axis.low, axis.high, count);
  return axis;
}

void check(const Plot& plot, double width) {
  if (!(width >= 280) || !std::isfinite(width)) {
    throw std::invalid_argument(fmt::format("[plot] a width of {} is too little; 280 is the least", width));
  }
  if (!(plot.height >= 100 && plot.height <= 2000)) {
    throw std::invalid_argument(
        fmt::format("[plot] a height of {} cannot be drawn; 100 to 2000 can", plot.height));
  }
  size_t points = 0;
  for (const auto& series : plot.series) {
    const auto fits = [&series](size_t size) { return size == 0 || size == series.x.size(); };
    if (series.x.size() != series.y.size() || !fits(series.spread.size()) || !fits(series.spread_x.size()) ||
        !fits(series.labels.size())) {
      throw std::invalid_argument("[plot] series '" + series.name +
                                  "' has x, y, spread and labels of different lengths");
    }
    const auto bad_x = [&](double x) { return !std::isfinite(x) || (plot.log_x && x <= 0); };
    const auto unnamed = [&](double x) {
      return !plot.x_names.empty() &&
             !(x >= 0 && x < static_cast<double>(plot.x_names.size()) && x == std::floor(x));
    };
    const auto bad_y = [&](double y) { return !std::isfinite(y) || (plot.log_y && y <= 0); };
    const auto bad_spread = [](double spread) { return !std::isfinite(spread) || spread < 0; };
    if (std::any_of(series.x.begin(), series.x.end(), bad_x) ||
        std::any_of(series.y.begin(), series.y.end(), bad_y) ||
        std::any_of(series.spread.begin(), series.spread.end(), bad_spread) ||
        std::any_of(series.spread_x.begin(), series.spread_x.end(), bad_spread)) {
      throw std::invalid_argument("[plot] series '" + series.name + "' has a value that cannot be drawn");
    }
    if (std::any_of(series.x.begin(), series.x.end(), unnamed)) {
      throw std::invalid_argument(
          fmt::format("[plot] series '{}' has an x that is none of the {} names' places", series.name,
                      plot.x_names.size()));
    }
    points += series.x.size();
  }
  if (points == 0) throw std::invalid_argument("[plot] '" + plot.title + "' has no points");
}

// An x for the text alternative, or (`digits`) with all its digits.
std::string x_text(const Plot& plot, double x, bool digits) {
  if (!plot.x_names.empty()) return plot.x_names[static_cast<size_t>(x)];
  return digits ? fmt::format("{}", x) : fmt::format("{:.4g}", x);
}

std::string description_of(const Plot& plot) {
  std::string text = plot.y_label + " against " + plot.x_label + ".";
  for (const auto& series : plot.series) {
    const auto size = series.x.size();
    if (size == 0) continue;
    text += fmt::format(" {}:", series.name);
    const auto point = [&](size_t i) {
      const bool labelled = !series.labels.empty() && !series.labels[i].empty();
      return fmt::format(" {:.4g} at {}{}", series.y[i], x_text(plot, series.x[i], false),
                         labelled ? " (" + series.labels[i] + ")" : "");
    };
    if (size > kDescribed) {
      const auto [low, high] = std::minmax_element(series.y.begin(), series.y.end());
      text += fmt::format(" {} points from{} to{}, lowest{}, highest{}.", size, point(0), point(size - 1),
                          point(static_cast<size_t>(low - series.y.begin())),
                          point(static_cast<size_t>(high - series.y.begin())));
      continue;
    }
    for (size_t i = 0; i < size; ++i) text += point(i) + (i + 1 < size ? "," : ".");
  }
  return text;
}

// A plot's layout and what was drawn of it so far.
class Drawing {
 public:
  Drawing(const Plot& plot, double width) : plot_(plot), width_(width) {
    std::vector<double> xs, ys;
    for (const auto& series : plot.series) {
      for (size_t i = 0; i < series.x.size(); ++i) {
        const double spread = series.spread_x.empty() ? 0 : series.spread_x[i];
        xs.push_back(series.x[i] + spread);
        xs.push_back(plot.log_x && spread >= series.x[i] ? series.x[i] : series.x[i] - spread);
      }
      for (size_t i = 0; i < series.y.size(); ++i) {
        const double spread = series.spread.empty() ? 0 : series.spread[i];
        ys.push_back(series.y[i] + spread);
        ys.push_back(plot.log_y && spread >= series.y[i] ? series.y[i] : series.y[i] - spread);
      }
    }
    const bool narrow = width < 560;
    const auto axis_of = [](const std::vector<double>& values, bool log, bool at_values, double count) {
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      return log ? log_axis(values, at_values, count) : linear_axis(*low, *high, count);
    };
    y_ = axis_of(ys, plot.log_y, false, narrow ? 4 : 5);
    if (plot.x_names.empty()) {
      x_ = axis_of(xs, plot.log_x, true, narrow ? 5 : 7);
      const auto whole = [](double x) { return x == std::round(x); };
      if (std::all_of(xs.begin(), xs.end(), whole) && std::any_of(x_.ticks.begin(), x_.ticks.end(), whole))
        std::erase_if(x_.ticks, [&](double tick) { return !whole(tick); });  // there is no epoch 1.5
    } else {
      x_ = {-0.5, static_cast<double>(plot.x_names.size()) - 0.5, false, {}};
    }
    find_companions();
    place(narrow);
  }

  std::string svg() {
    body_ += svg::text_lines(title_, kMargin, 24, kTitleLine,
                             fmt::format("font-size=\"{:g}\" font-weight=\"600\"", kTitle));
    axes();
    for (size_t s = 0; s < plot_.series.size(); ++s) line(s);
    for (size_t s = 0; s < plot_.series.size(); ++s) marks(s);
    labels();
    legend();
    return svg::document(width_, height_, plot_.title, description_of(plot_), body_);
  }

 private:
  struct Label {
    double x, y;
    std::string text;
  };
  // Lines that run on one another: the first of them, how many there are, and which of them this is.
  struct Company {
    size_t first, size = 1, place = 0;
  };

  bool coincide(const Series& a, const Series& b) const {
    if (a.x.empty() || a.x != b.x || !a.line || !b.line || a.dashed || b.dashed) return false;
    for (size_t i = 0; i < a.y.size(); ++i) {
      if (std::abs(y_.share(a.y[i]) - y_.share(b.y[i])) * plot_.height > kSame) return false;
    }
    return true;
  }

  void find_companions() {
    const auto& all = plot_.series;
    for (size_t s = 0; s < all.size(); ++s) {
      Company own{s};
      for (size_t first = 0; first < s && own.first == s; ++first) {
        if (company_[first].first == first && coincide(all[first], all[s])) own.first = first;
      }
      company_.push_back(own);
      if (own.first != s) company_[s].place = company_[own.first].size++;
    }
    for (auto& own : company_) own.size = company_[own.first].size;
  }

  // In the legend: "SPD (= FT)" of a line that another covers.
  std::string name_of(size_t s) const {
    const auto& own = plot_.series[s];
    const auto& first = plot_.series[company_[s].first];
    if (company_[s].place == 0 || own.name.empty() || first.name.empty()) return own.name;
    return fmt::format("{} ({} {})", own.name, own.y == first.y ? "=" : "≈", first.name);
  }

  double px(double x) const { return frame_.left + (frame_.right - frame_.left) * x_.share(x); }
  double py(double y) const { return frame_.bottom - (frame_.bottom - frame_.top) * y_.share(y); }

  svg::AxisNames x_names() const { return {plot_.x_names, px(0), px(1) - px(0)}; }

  void place(bool narrow) {
    double longest = 0;
    size_t names = 0;
    for (size_t s = 0; s < plot_.series.size(); ++s) {
      if (plot_.series[s].name.empty()) continue;
      longest = std::max(longest, svg::text_width(name_of(s)));
      ++names;
    }
    title_ = svg::wrapped(plot_.title, width_ - 2 * kMargin, kTitle);
    y_label_ = svg::wrapped(plot_.y_label, width_ - 2 * kMargin);
    frame_.left = kMargin;
    for (const auto& tick : svg::numbers(y_.ticks)) {
      frame_.left = std::max(frame_.left, kMargin + svg::text_width(tick) + 8);
    }
    beside_ = !narrow && kKey + longest <= 0.36 * width_;
    frame_.right = width_ - kMargin - (beside_ && names > 0 ? 20 + kKey + longest : 8);
    x_label_ = svg::wrapped(plot_.x_label, frame_.right - frame_.left);

    const auto lines = [](const auto& text) { return static_cast<double>(text.size()); };
    frame_.top = 20 + kTitleLine * lines(title_) + kLine * lines(y_label_);
    double tall = narrow ? std::round(plot_.height * 0.75) : plot_.height;
    if (beside_) tall = std::max(tall, kLegendLine * static_cast<double>(names));
    frame_.bottom = frame_.top + tall;
    x_label_top_ = frame_.bottom + (plot_.x_names.empty() ? 22 + kLine : x_names().height());
    below_ = x_label_top_ + 4 + kLine * (lines(x_label_) - 1);  // all but the legend
    entry_ = beside_ ? 0 : std::min(kKey + longest + 16, width_ - 2 * kMargin);
    columns_ = beside_ ? 1 : std::max<size_t>(1, static_cast<size_t>((width_ - 2 * kMargin) / entry_));
    const auto rows = beside_ ? 0 : (names + columns_ - 1) / columns_;
    height_ = below_ + (rows > 0 ? 14 + kLegendLine * static_cast<double>(rows) : kMargin);
  }

  void axes() {
    body_ += svg::text_lines(y_label_, kMargin, 24 + kTitleLine * static_cast<double>(title_.size()), kLine);
    auto texts = svg::numbers(y_.ticks);
    for (size_t i = 0; i < texts.size(); ++i) {
      const double y = py(y_.ticks[i]);
      body_ += fmt::format(
          "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          frame_.left, y, frame_.right, frame_.left - 8, y + 4.5, texts[i]);
    }
    texts = svg::numbers(x_.ticks);
    if (!plot_.x_names.empty()) body_ += x_names().svg(frame_.bottom);
    double taken = -1e9;  // up to here there are numbers
    body_ += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", frame_.left, frame_.bottom,
                         frame_.right);
    for (size_t i = 0; i < texts.size(); ++i) {
      const double x = px(x_.ticks[i]), half = svg::text_width(texts[i]) / 2;
      body_ += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}v5\"/>", x, frame_.bottom);
      if (x - half < taken || x + half > width_) continue;
      body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x,
                           frame_.bottom + 20, texts[i]);
      taken = x + half + 4;
    }
    body_ += svg::text_lines(x_label_, (frame_.left + frame_.right) / 2, x_label_top_, kLine,
                             "text-anchor=\"middle\"");
  }

  static const char* dash(const Series& series, const Look& look) {
    return series.dashed ? " stroke-dasharray=\"6 4\"" : look.hollow ? " stroke-dasharray=\"2 2.5\"" : "";
  }

  // Which points a line goes through: all, or the lowest and the highest of every two pixels.
  std::vector<size_t> path_of(const Series& series) const {
    std::vector<size_t> kept(series.x.size());
    std::iota(kept.begin(), kept.end(), size_t{0});
    if (static_cast<double>(kept.size()) <= frame_.right - frame_.left) return kept;
    const auto strip = [&](size_t i) { return std::floor(px(series.x[i]) / 2); };
    const auto lower = [&](size_t a, size_t b) { return series.y[a] < series.y[b]; };
    const auto all = std::exchange(kept, {});
    for (auto begin = all.begin(), end = begin; begin != all.end(); begin = end) {
      end = std::find_if(begin, all.end(), [&](size_t i) { return strip(i) != strip(*begin); });
      const auto [low, high] = std::minmax_element(begin, end, lower);
      kept.push_back(std::min(*low, *high));
      if (low != high) kept.push_back(std::max(*low, *high));
    }
    if (kept.front() != 0) kept.insert(kept.begin(), 0);
    if (kept.back() != all.back()) kept.push_back(all.back());
    return kept;
  }

  void line(size_t s) {
    const auto& series = plot_.series[s];
    if (!series.line && !series.dashed) return;
    std::string path;
    Point last{};
    for (const size_t i : path_of(series)) {
      const Point now{px(series.x[i]), py(series.y[i])};
      // On an axis of names a line joins neighbors only: there is no value between two, nor at one left out.
      const bool apart =
          path.empty() || (!plot_.x_names.empty() && std::abs(series.x[i] - series.x[i - 1]) > 1.5);
      path += fmt::format("{}{:.1f} {:.1f}", apart ? "M" : "L", now.x, now.y);
      if (!apart) lines_.emplace_back(last, now);
      last = now;
    }
    if (path.empty()) return;
    const Look look(s);
    const auto& [first, size, place] = company_[s];
    // Each has dashes of its own, between which the others are seen.
    const auto dashes =
        place == 0 ? std::string(dash(series, look))
                   : fmt::format(" stroke-dasharray=\"{:g} {:g}\" stroke-dashoffset=\"-{:g}\"", kDash,
                                 kDash * static_cast<double>(size - 1), kDash * static_cast<double>(place));
    body_ += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"{}/>\n", path,
        look.colour, dashes);
  }

  // A later series of points has one here, too.
  bool covered(size_t s, size_t i) const {
    const auto& own = plot_.series[s];
    if (!own.line) return false;
    return std::any_of(plot_.series.begin() + static_cast<std::ptrdiff_t>(s) + 1, plot_.series.end(),
                       [&](const Series& other) {
                         for (size_t j = 0; !other.line && !other.dashed && j < other.x.size(); ++j) {
                           if (other.x[j] == own.x[i] && other.y[j] == own.y[i]) return true;
                         }
                         return false;
                       });
  }

  void marks(size_t s) {
    const auto& series = plot_.series[s];
    const Look look(s);
    // Some marks of a long line, at other places than those of the next one.
    const bool some = series.line && series.x.size() > kMarked;
    const size_t every = some ? std::max<size_t>(series.x.size() / 10, 1) : 1;
    const size_t first = some ? every * (s % 7) / 7 : 0;
    // Lines that share their points take turns.
    const auto& company = company_[s];
    const auto has_turn = [&](size_t i) {
      return some || company.size > series.x.size() || i % company.size == company.place;
    };
    for (size_t i = 0; i < series.x.size(); ++i) {
      const double x = px(series.x[i]), y = py(series.y[i]);
      const bool labelled = !series.labels.empty() && !series.labels[i].empty();
      if (!series.spread.empty()) {
        const double low = series.y[i] - series.spread[i], high = series.y[i] + series.spread[i];
        const double bottom = plot_.log_y && low <= 0 ? frame_.bottom : py(low);
        body_ += fmt::format("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"{3}\" stroke-width=\"1.3\"/>", x,
                             bottom, py(high), look.colour);
      }
      if (!series.spread_x.empty()) {
        const double low = series.x[i] - series.spread_x[i], high = series.x[i] + series.spread_x[i];
        const double left = plot_.log_x && low <= 0 ? frame_.left : px(low);
        body_ += fmt::format("<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\" stroke=\"{3}\" stroke-width=\"1.3\"/>",
                             left, y, px(high), look.colour);
      }
      const bool marked =
          !series.dashed && (labelled || (i % every == first && has_turn(i) && !covered(s, i)));
      if (marked) body_ += look.mark(x, y, labelled ? series.labels[i] : "");
      if (marked) marks_.push_back({x - kMark, y - kMark, x + kMark, y + kMark});
      if (labelled) labels_.push_back({x, y, series.labels[i]});
    }
    body_ += '\n';
  }

  // Greedy: the label with the most neighbors is placed first, at the nearest place that is free.
  void labels() {
    std::vector<std::pair<int, size_t>> order;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const auto near = [&](const Label& other) {
        return std::hypot(other.x - labels_[i].x, other.y - labels_[i].y) < 60;
      };
      order.emplace_back(-static_cast<int>(std::count_if(labels_.begin(), labels_.end(), near)), i);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [neighbours, i] : order) label(labels_[i]);
  }

  void label(const Label& label) {
    const double wide = svg::text_width(label.text, kLabel), tall = kLabel + 2;
    // To the right, left, above, below, then the corners; further away with a line. On lines only where all
    // else is taken.
    constexpr std::pair<int, int> kSides[] = {{1, 0},  {-1, 0}, {0, -1},  {0, 1},
                                              {1, -1}, {1, 1},  {-1, -1}, {-1, 1}};
    for (const bool on_lines : {false, true}) {
      for (const double gap : {2.5, 14.0, 26.0}) {
        for (const auto& [right, down] : kSides) {
          const double reach = kMark + (right != 0 && down != 0 ? gap * 0.7 : gap);
          const double left = right > 0   ? label.x + reach
                              : right < 0 ? label.x - reach - wide
                                          : label.x - wide / 2;
          const double top = down > 0   ? label.y + reach
                             : down < 0 ? label.y - reach - tall
                                        : label.y - tall / 2;
          const Box box{left, top, left + wide, top + tall};
          const Point from{label.x, label.y};
          const Point to{std::clamp(from.x, box.left, box.right), std::clamp(from.y, box.top, box.bottom)};
          const auto hit = [&](const Box& other) {
            return box.overlaps(other) || (gap > 10 && !on_lines && other.crossed(from, to));
          };
          const auto under = [&](const auto& line) { return box.crossed(line.first, line.second); };
          // Its own mark is where its line begins.
          const auto other_mark = [&](const Box& mark) {
            return !mark.holds(from) ? hit(mark) : box.overlaps(mark);
          };
          if (!box.within(frame_) || std::any_of(marks_.begin(), marks_.end(), other_mark) ||
              std::any_of(taken_.begin(), taken_.end(), hit) ||
              (!on_lines && std::any_of(lines_.begin(), lines_.end(), under)))
            continue;
          taken_.push_back(box);
          if (gap > 10) {
            lines_.emplace_back(from, to);
            body_ += fmt::format(
                "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"currentColor\" stroke-opacity=\".5\"/>",
                from.x, from.y, to.x, to.y);
          }
          body_ +=
              fmt::format("<text class=\"halo\" x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\"{}>{}</text>\n",
                          right > 0   ? box.left
                          : right < 0 ? box.right
                                      : label.x,
                          box.bottom - 3.5, kLabel,
                          right > 0   ? ""
                          : right < 0 ? " text-anchor=\"end\""
                                      : " text-anchor=\"middle\"",
                          svg::escaped(label.text));
          return;
        }
      }
    }
  }

  void legend() {
    size_t entry = 0;
    for (size_t s = 0; s < plot_.series.size(); ++s) {
      const auto& series = plot_.series[s];
      if (series.name.empty()) continue;
      const Look look(s);
      const auto column = static_cast<double>(entry % columns_), row = static_cast<double>(entry / columns_);
      ++entry;
      const double x = beside_ ? frame_.right + 20 : kMargin + column * entry_;
      const double y = (beside_ ? frame_.top + 6 : below_ + 14) + kLegendLine * row;
      if (series.line || series.dashed) {
        body_ += fmt::format("<path d=\"M{:.1f} {:.1f}h24\" stroke=\"{}\" stroke-width=\"2\"{}/>", x, y,
                             look.colour, dash(series, look));
      }
      if (!series.dashed) body_ += look.mark(x + 12, y);
      const auto name = svg::clipped(name_of(s), width_ - kMargin - x - kKey);
      body_ += svg::text_lines({name}, x + kKey, y + 4.5, 0);
    }
  }

  const Plot& plot_;
  double width_, height_ = 0;
  Axis x_{}, y_{};
  Box frame_{};  // of the data
  std::vector<std::string> title_, x_label_, y_label_;
  bool beside_ = false;  // the legend
  double x_label_top_ = 0, below_ = 0, entry_ = 0;
  size_t columns_ = 1;
  std::vector<Company> company_;    // of each series
  std::vector<Box> marks_, taken_;  // by labels
  std::vector<std::pair<Point, Point>> lines_;
  std::vector<Label> labels_;
  std::string body_;
};

}  // namespace

std::string to_svg(const Plot& plot, double width) {
  check(plot, width);
  return Drawing(plot, width).svg();
}

std::string to_csv(const Plot& plot) {
  check(plot, 720);
  const auto any = [&plot](auto member) {
    return std::any_of(plot.series.begin(), plot.series.end(),
                       [member](const Series& series) { return !(series.*member).empty(); });
  };
  const bool spread = any(&Series::spread), spread_x = any(&Series::spread_x), labels = any(&Series::labels);
  std::string text = fmt::format("series,x,y{}{}{}\n", spread ? ",spread" : "", spread_x ? ",spread_x" : "",
                                 labels ? ",label" : "");
  for (const auto& series : plot.series) {
    for (size_t i = 0; i < series.x.size(); ++i) {
      text += fmt::format("{},{},{}", csv_field(series.name), csv_field(x_text(plot, series.x[i], true)),
                          series.y[i]);
      if (spread) text += series.spread.empty() ? "," : fmt::format(",{}", series.spread[i]);
      if (spread_x) text += series.spread_x.empty() ? "," : fmt::format(",{}", series.spread_x[i]);
      if (labels) text += series.labels.empty() ? "," : "," + csv_field(series.labels[i]);
      text += '\n';
    }
  }
  return text;
}

}  // namespace tpgm

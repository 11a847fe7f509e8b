#include "tpgm/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace tpgm::svg {
namespace {

constexpr double kSlant = 0.7071;  // sine and cosine of the slanted names' 45 degrees
constexpr double kSlantStep = 19;  // slanted names need as much from one to the next

// Bytes of the character that `text` begins with; 0 if it begins with none.
size_t character(std::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  const size_t size = first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : 4;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, what is beyond Unicode, and two characters that XML has not.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
  if (first == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE) return 0;
  return size;
}

// The width of a character, in units of the text's size.
double character_width(std::string_view one) {
  if (one.size() > 1) return static_cast<uint8_t>(one[0]) >= 0xE3 ? 1.05 : 0.72;
  const char c = one[0];
  if (std::string_view(" ijlftr.,:;'|!()[]").find(c) != std::string_view::npos) return 0.4;
  if (std::string_view("mwMW@%").find(c) != std::string_view::npos) return 0.95;
  return c >= 'A' && c <= 'Z' ? 0.72 : 0.62;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    result.push_back(text.substr(0, std::max<size_t>(character(text), 1)));
    text.remove_prefix(result.back().size());
  }
  return result;
}

// The number with a minus sign instead of a hyphen.
std::string with_minus(std::string number) {
  if (number.starts_with('-')) number.replace(0, 1, "−");
  return number;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const auto one : characters(text)) {
    const char c = one[0];
    if (character(one) == 0) {
      result += "\xEF\xBF\xBD";
    } else if (one == "&") {
      result += "&amp;";
    } else if (one == "<") {
      result += "&lt;";
    } else if (one == ">") {
      result += "&gt;";
    } else if (one == "\"") {
      result += "&quot;";
    } else if (one == "'") {
      result += "&#39;";
    } else if (one.size() == 1 && ((c >= 0 && c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)) {
      result += ' ';
    } else {
      result += one;
    }
  }
  return result;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const auto one : characters(text)) width += character_width(one);
  return width * size;
}

std::vector<std::string> wrapped(std::string_view text, double width, double size) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(" \n"), text.size());
    const auto word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!lines.empty() && text_width(lines.back(), size) + text_width(word, size) + size / 2 <= width) {
      lines.back().append(" ").append(word);
    } else {
      lines.push_back(clipped(word, width, size));
    }
  }
  return lines;
}

std::string clipped(std::string_view text, double width, double size) {
  if (text_width(text, size) <= width + 0.01) return std::string(text);  // as computed elsewhere, but rounded
  const auto all = characters(text);
  std::string head, tail;
  size_t first = 0, last = all.size();
  double left = width - text_width("…", size);
  // From both ends in turn.
  while (first < last) {
    const bool front = first <= all.size() - last;
    const auto one = all[front ? first : last - 1];
    left -= text_width(one, size);
    if (left < 0) break;
    if (front) {
      head += one;
      ++first;
    } else {
      tail.insert(0, one);
      --last;
    }
  }
  return head + "…" + tail;
}

std::string text_lines(const std::vector<std::string>& lines, double x, double y, double line,
                       std::string_view attributes) {
  std::string result;
  for (size_t i = 0; i < lines.size(); ++i) {
    result +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}{}>{}</text>\n", x, y + line * static_cast<double>(i),
                    attributes.empty() ? "" : " ", attributes, escaped(lines[i]));
  }
  return result;
}

std::vector<double> linear_ticks(double low, double high, double count) {
  const double rough = (high - low) / std::max(count, 1.0);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double i = first; i <= last && ticks.size() < 100; ++i) ticks.push_back(i == 0 ? 0 : i * step);
  return ticks;
}

std::string number(double value, int digits) {
  auto text = fmt::format("{:.{}g}", value == 0 ? 0 : value, digits);
  const auto exponent = text.find('e');
  if (exponent != std::string::npos) {  // from 1e-07, 1e+07
    const auto* const sign = text[exponent + 1] == '-' ? "-" : "";
    text = text.substr(0, exponent + 1) + sign + text.substr(text.find_first_not_of('0', exponent + 2));
  }
  return with_minus(std::move(text));
}

std::string fixed(double value, int decimals) { return with_minus(fmt::format("{:.{}f}", value, decimals)); }

std::vector<std::string> numbers(const std::vector<double>& ticks) {
  std::vector<std::string> texts;
  for (int digits = 6; digits <= 17; ++digits) {
    texts.clear();
    for (const double tick : ticks) texts.push_back(number(tick, digits));
    if (std::adjacent_find(texts.begin(), texts.end()) == texts.end()) break;
  }
  return texts;
}

AxisNames::AxisNames(const std::vector<std::string>& names, double first, double step)
    : names_(names), first_(first), step_(step) {
  double longest = 0;
  for (const auto& name : names) longest = std::max(longest, text_width(name, kSmall));
  slanted_ = longest + 6 > step;
  // The first name hangs to the left of its place.
  width_ = slanted_ ? std::min({longest, 150.0, (first - 2) / kSlant}) : longest;
  every_ = slanted_ ? static_cast<size_t>(std::ceil(kSlantStep / step)) : 1;
}

double AxisNames::height() const { return (slanted_ ? 14 + kSlant * (width_ + kSmall) : 20) + kLine; }

std::string AxisNames::svg(double axis) const {
  std::string result = fmt::format("<g font-size=\"{:g}\">\n", kSmall);
  for (size_t i = 0; i < names_.size(); i += every_) {
    const auto name = escaped(clipped(names_[i], width_, kSmall));
    const double at = first_ + step_ * static_cast<double>(i);
    if (slanted_) {
      result += fmt::format(
          "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}v4\"/><text transform=\"translate({2:.1f} {3:.1f}) "
          "rotate(-45)\" text-anchor=\"end\">{4}</text>\n",
          at, axis, at + 3, axis + 14, name);
    } else {
      result += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", at,
                            axis + 17, name);
    }
  }
  return result + "</g>\n";
}

std::string document(double width, double height, std::string_view title, std::string_view description,
                     std::string_view body) {
  // Every rule begins with the class of the document: within a page they apply to figures alone. Paper is
  // light, whatever the screen is.
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tpgm-figure\" viewBox=\"0 0 {0:g} {1:g}\" "
      "width=\"{0:g}\" height=\"{1:g}\" role=\"img\" aria-label=\"{2}\" fill=\"currentColor\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"{4:g}\">\n<title>{2}</title>\n<desc>{3}</desc>\n"
      "<style>.tpgm-figure{{color:#222}}.tpgm-figure .grid{{stroke:#ddd}}.tpgm-figure .page{{fill:#fff}}"
      ".tpgm-figure .none{{fill:#eee}}.tpgm-figure .halo{{paint-order:stroke;stroke:#fff;stroke-width:3px;"
      "stroke-linejoin:round}}@media screen and (prefers-color-scheme:dark){{.tpgm-figure{{color:#ddd}}"
      ".tpgm-figure .grid{{stroke:#444}}.tpgm-figure .page{{fill:#161616}}.tpgm-figure .none{{fill:#333}}"
      ".tpgm-figure .halo{{stroke:#161616}}}}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{5}</svg>\n",
      std::ceil(width), std::ceil(height), escaped(title), escaped(description), kText, body);
}

}  // namespace tpgm::svg

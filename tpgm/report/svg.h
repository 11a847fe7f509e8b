// Text, numbers and axis names for the SVG drawings and the page. For this room alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpgm::svg {

inline constexpr double kText = 13, kTitle = 15;      // sizes of text
inline constexpr double kLine = 18, kTitleLine = 20;  // from one line of it to the next
inline constexpr double kMargin = 12;                 // around everything
inline constexpr double kSmall = 12;                  // size of names and values within a drawing

/// Text for XML and HTML, within elements and attributes. Other control characters than tab and line break
/// become spaces, and what is not UTF-8 becomes U+FFFD: either would make the whole document unreadable.
std::string escaped(std::string_view text);

/// The width of a line of text: a generous estimate, because the reader's font is not known.
double text_width(std::string_view text, double size = kText);

/// In lines of at most `width` where words allow it.
std::vector<std::string> wrapped(std::string_view text, double width, double size = kText);

/// With an ellipsis for its middle if it is wider than `width`: names often differ at their ends.
std::string clipped(std::string_view text, double width, double size = kText);

/// <text> at a place, one line below the other. `attributes` as in XML.
std::string text_lines(const std::vector<std::string>& lines, double x, double y, double line,
                       std::string_view attributes = "");

/// Multiples of 1, 2 or 5 times a power of ten within [low, high], about `count`.
std::vector<double> linear_ticks(double low, double high, double count);

/// Short, for people: 0.25, 120000, 1.5e-7.
std::string number(double value, int digits = 6);

/// With this many decimals.
std::string fixed(double value, int decimals);

/// Numbers of one axis, with as many digits as tell them apart.
std::vector<std::string> numbers(const std::vector<double>& ticks);

/// Names below an axis, the first at `first` and each `step` further to the right: level if all of them fit, or
/// else slanted and clipped. If they would still touch, only every n-th is shown.
class AxisNames {
 public:
  AxisNames(const std::vector<std::string>& names, double first, double step);

  /// From the axis to the baseline of a line of text below them.
  double height() const;
  std::string svg(double axis) const;

 private:
  const std::vector<std::string>& names_;
  double first_, step_;
  bool slanted_;
  double width_;  // of a name, at most
  size_t every_;  // how many steps from one that is shown to the next
};

/// An SVG document around `body`, which inherits the color of text as fill. Of `body` the classes grid
/// (lines), page (the background's fill), none (the fill of what is not there) and halo (of text over lines)
/// have a look that follows the light.
std::string document(double width, double height, std::string_view title, std::string_view description,
                     std::string_view body);

}  // namespace tpgm::svg

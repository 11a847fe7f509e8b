// Names of tensors: globs, suggestions, natural order, blocks.
#include "tpgm/base/names.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

constexpr size_t kLongest = 256;  // bytes of names that are compared; longer ones are not misspelled words

// In lower case, with one '\x80' for each letter that is not ASCII.
std::string folded(const std::string& text) {
  std::string result;
  for (const char c : lower(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      result += c;
    else if (byte >= 0xc0)  // the first byte of a letter
      result += '\x80';
  }
  return result;
}

// Damerau–Levenshtein distance: letters to insert, delete or replace, and neighbors to swap. A '*' in `a`
// stands for any letters.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    const bool star = a[i - 1] == '*';
    row[0] = above[0] + (star ? 0 : 1);
    for (size_t j = 1; j <= b.size(); ++j) {
      if (star) {
        row[j] = std::min(above[j], row[j - 1]);
        continue;
      }
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(above, row);
  }
  return above.back();
}

// How many letters may differ: about a third.
size_t limit_of(const std::string& word, const std::string& other) {
  const auto stars = static_cast<size_t>(std::count(word.begin(), word.end(), '*'));
  const size_t letters = stars > 0 ? word.size() - stars : std::max(word.size(), other.size());
  return letters < 2 ? 0 : std::min<size_t>((letters + 2) / 3, 4);
}

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool matches(const std::string& glob, const std::string& name) {
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  if (word.size() > kLongest) return "";
  const std::string wanted = folded(word);
  std::string best;
  size_t least = kLongest;
  for (const auto& each : words) {
    if (each == word) return each;
    if (each.size() > kLongest) continue;
    const std::string other = folded(each);
    const size_t distance = edit_distance(wanted, other);
    if (distance >= least || distance > limit_of(wanted, other)) continue;
    least = distance;
    best = each;
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& words,
                         const std::string& prefix) {
  const auto meant = nearest(word, words);
  if (meant.empty()) return "";
  const bool not_ascii = !is_ascii(word) && is_ascii(meant);
  return fmt::format("{}; did you mean '{}{}'?", not_ascii ? "; it has a character that is not ASCII" : "",
                     prefix, printable(meant));
}

std::string the_nearest(const std::string& word, const std::vector<std::string>& words) {
  const auto found = nearest(word, words);
  return found.empty() ? "" : fmt::format("; the nearest is '{}'", printable(found));
}

void check_globs(const std::string& option, const std::vector<std::string>& globs,
                 const std::vector<std::string>& names) {
  for (const auto& glob : globs) {
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(glob, name); }))
      continue;
    auto hint = the_nearest(glob, names);
    if (hint.empty())
      hint = names.empty() ? "; the model has none"
                           : "; their names are like '" + printable(names.front()) + "'";
    TORCH_CHECK(false, option, " '", glob, "' matches no parameter", hint);
  }
}

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return matches(glob, name); });
}

bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto number = [&](const std::string& text, size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const size_t begin = at;
      while (at < text.size() && digit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string x = number(a, i), y = number(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  return a.size() - i < b.size() - j;
}

std::string block_name(const std::string& name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t begin = 0;
  while (true) {
    const auto end = name.find('.', begin);
    if (end == std::string::npos) {
      break;  // without the parameter's own name
    }
    const auto part = name.substr(begin, end - begin);
    const auto digits = std::find_if_not(part.rbegin(), part.rend(), is_digit);
    if (digits == part.rend() || (digits != part.rbegin() && *digits == '_')) {
      return name.substr(0, end);
    }
    begin = end + 1;
  }
  return begin == 0 ? "" : name.substr(0, begin - 1);
}

}  // namespace tpgm

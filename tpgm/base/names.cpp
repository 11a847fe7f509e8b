// Names of tensors: globs, suggestions, natural order, blocks.
#include "tpgm/base/names.h"

#include <c10/util/Exception.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace tpgm {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const auto above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

bool matches(const std::string& glob, const std::string& name) {
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  const auto best = std::min_element(words.begin(), words.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  return best == words.end() ? "" : *best;
}

void check_globs(const std::string& option, const std::vector<std::string>& globs,
                 const std::vector<std::string>& names) {
  for (const auto& glob : globs) {
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(glob, name); }))
      continue;
    const auto hint = nearest(glob, names);
    TORCH_CHECK(false, option, " '", glob, "' matches no parameter",
                hint.empty() ? "; the model has none" : "; the nearest is '" + hint + "'");
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

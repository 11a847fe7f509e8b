// Patterns of file names.
#include "tpgm/data/sources/braces.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"

namespace tpgm {

namespace fs = std::filesystem;

std::vector<std::string> parse_braces(const std::string& pattern) {
  constexpr size_t kMostFiles = 1'000'000, kMostBytes = 256 << 20;
  const std::string advice = "expected a range such as {000..146}, or {train,val}";
  std::vector<std::string> done, open = {pattern};
  size_t bytes = 0;
  const auto check_count = [&](size_t count, size_t size) {
    bytes += size;
    if (count > kMostFiles || bytes > kMostBytes)
      throw Malformed{"it names more than a million files, or more than 256 MiB of them", advice};
  };
  while (!open.empty()) {
    std::string text = std::move(open.back());
    open.pop_back();
    const size_t begin = text.find('{'), end = text.find('}', begin == std::string::npos ? 0 : begin);
    if (begin == std::string::npos) {
      done.push_back(std::move(text));
      continue;
    }
    if (end == std::string::npos) throw Malformed{"it has a '{' without its '}'", advice};
    const std::string inside = text.substr(begin + 1, end - begin - 1);
    const size_t rest = text.size() - inside.size();
    std::vector<std::string> choices;
    const auto add = [&](std::string choice) {
      check_count(done.size() + open.size() + choices.size() + 1, rest + choice.size());
      choices.push_back(std::move(choice));
    };
    if (const size_t dots = inside.find(".."); dots != std::string::npos) {
      const std::string first = inside.substr(0, dots), last = inside.substr(dots + 2);
      const auto from = parse_number<int64_t>(first), to = parse_number<int64_t>(last);
      if (!from || !to || *from < 0 || *from > *to || *to - *from >= static_cast<int64_t>(kMostFiles))
        throw Malformed{fmt::format("it has {{{}}}", printable(inside)), advice};
      for (int64_t i = *from; i <= *to; ++i) add(fmt::format("{:0{}}", i, first.size()));
    } else {
      for (size_t at = 0; at <= inside.size();) {
        const size_t comma = std::min(inside.find(',', at), inside.size());
        add(inside.substr(at, comma - at));
        at = comma + 1;
      }
    }
    for (auto choice = choices.rbegin(); choice != choices.rend(); ++choice) {
      open.push_back(text.substr(0, begin) + *choice + text.substr(end + 1));
    }
  }
  return done;
}

std::vector<fs::path> expand_braces(const std::string& pattern) {
  std::vector<std::string> names;
  try {
    names = parse_braces(pattern);
  } catch (const Malformed& malformed) {
    TORCH_CHECK(false, "[expand_braces] '", printable(pattern, kMaxPath), "': ", malformed.reason, "; ",
                malformed.advice);
  }
  for (const auto& path : names) {
    std::error_code ignored;
    TORCH_CHECK(fs::is_regular_file(path, ignored), "[expand_braces] there is no file '", path, "'",
                names.size() > 1 ? fmt::format(", one of the {} of '{}'", names.size(), pattern) : "");
  }
  return {names.begin(), names.end()};
}

}  // namespace tpgm

// Patterns of file names.
#include "tpgm/data/sources/braces.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "tpgm/base/numbers.h"

namespace tpgm {

namespace fs = std::filesystem;

std::vector<fs::path> expand_braces(const std::string& pattern) {
  std::vector<std::string> done, open = {pattern};
  while (!open.empty()) {
    std::string text = std::move(open.back());
    open.pop_back();
    const size_t begin = text.find('{'), end = text.find('}', begin == std::string::npos ? 0 : begin);
    if (begin == std::string::npos) {
      done.push_back(std::move(text));
      continue;
    }
    TORCH_CHECK(end != std::string::npos, "[expand_braces] '", pattern, "' has a '{' without its '}'");
    const std::string inside = text.substr(begin + 1, end - begin - 1);
    std::vector<std::string> choices;
    if (const size_t dots = inside.find(".."); dots != std::string::npos) {
      const std::string first = inside.substr(0, dots), last = inside.substr(dots + 2);
      const auto from = parse_number<int64_t>(first), to = parse_number<int64_t>(last);
      TORCH_CHECK(from && to && *from >= 0 && *from <= *to && *to - *from < 1'000'000, "[expand_braces] '",
                  pattern, "': expected a range such as {000..146}, got {", inside, "}");
      for (int64_t i = *from; i <= *to; ++i) choices.push_back(fmt::format("{:0{}}", i, first.size()));
    } else {
      for (size_t at = 0; at <= inside.size();) {
        const size_t comma = std::min(inside.find(',', at), inside.size());
        choices.push_back(inside.substr(at, comma - at));
        at = comma + 1;
      }
    }
    TORCH_CHECK(done.size() + open.size() + choices.size() <= 1'000'000, "[expand_braces] '", pattern,
                "' names more than a million files");
    for (auto choice = choices.rbegin(); choice != choices.rend(); ++choice) {
      open.push_back(text.substr(0, begin) + *choice + text.substr(end + 1));
    }
  }
  for (const auto& path : done) {
    std::error_code ignored;
    TORCH_CHECK(fs::is_regular_file(path, ignored), "[expand_braces] there is no file '", path, "'",
                done.size() > 1 ? fmt::format(", one of the {} of '{}'", done.size(), pattern) : "");
  }
  return {done.begin(), done.end()};
}

}  // namespace tpgm

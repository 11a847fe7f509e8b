// Reads, writes and matches lists of classes.
#include "tpgm/data/class_list.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/sources/folder.h"
#include "tpgm/io/file.h"

namespace tpgm {

namespace fs = std::filesystem;

namespace {

// Null if there is none.
const std::string* first_twice(const std::vector<std::string>& names) {
  std::vector<const std::string*> sorted;
  for (const auto& name : names) sorted.push_back(&name);
  const auto less = [](const auto* a, const auto* b) { return *a < *b; };
  std::sort(sorted.begin(), sorted.end(), less);
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return *a == *b; });
  return twice == sorted.end() ? nullptr : *twice;
}

}  // namespace

void check_different(const std::vector<std::string>& names, const std::string& where) {
  const auto* twice = first_twice(names);
  TORCH_CHECK(twice == nullptr, where, " has the class '", printable(twice ? *twice : ""), "' twice");
}

std::vector<std::string> parse_class_list(std::string_view text) {
  constexpr const char* kExpected = "expected a class a line";
  std::vector<std::string> names;
  std::istringstream lines{std::string(without_byte_order_mark(text))};
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) names.push_back(line);
    if (static_cast<int64_t>(names.size()) > kMostClasses)
      throw Malformed{fmt::format("it has more than {} lines", kMostClasses), kExpected};
  }
  if (names.empty()) throw Malformed{"it is empty", kExpected};
  if (const auto* twice = first_twice(names))
    throw Malformed{fmt::format("it has the class '{}' twice", printable(*twice)), "remove one of the lines"};
  return names;
}

std::vector<std::string> load_class_list(const fs::path& path) try {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const auto parts = read_image_folder(path);
    TORCH_CHECK(parts.size() == 1 && !parts[0].classes.empty(), "'", path.string(),
                "' is not a folder of class folders");
    return parts[0].classes;
  }
  const MappedFile file(path);
  try {
    return parse_class_list(file.bytes());
  } catch (const Malformed& malformed) {
    refuse(path, malformed);
  }
} catch (...) {
  rethrow_from("load_class_list");
}

void save_class_list(const std::vector<std::string>& names, const fs::path& path) try {
  for (const auto& name : names) {
    TORCH_CHECK(!name.empty() && name.find('\n') == std::string::npos, "a list cannot hold the class '",
                printable(name), "'");
  }
  write_file(path, fmt::format("{}\n", fmt::join(names, "\n")));
} catch (...) {
  rethrow_from("save_class_list");
}

std::vector<std::string> class_list_beside(const fs::path& file) {
  for (const char* name : {"classes.txt", "classnames.txt"}) {
    std::error_code ignored;
    const fs::path list = file.parent_path() / name;
    if (fs::is_regular_file(list, ignored)) return load_class_list(list);
  }
  return {};
}

void match_classes(Samples& samples, const std::vector<std::string>& classes) {
  if (samples.classes == classes) return;
  std::unordered_map<std::string, int32_t> positions;
  for (size_t i = 0; i < classes.size(); ++i) positions.emplace(classes[i], static_cast<int32_t>(i));
  const bool by_position = all_numbers(samples.classes) && !all_numbers(classes);
  const bool any = std::any_of(samples.classes.begin(), samples.classes.end(),
                               [&](const auto& name) { return positions.contains(name); });
  TORCH_CHECK(by_position || any || samples.classes.empty(), "none of the ", samples.classes.size(),
              " classes of '", printable(samples.title()), "', such as '",
              printable(samples.classes.empty() ? "" : samples.classes.front()), "', is among the ",
              classes.size(), " they are matched with, such as '",
              printable(classes.empty() ? "" : classes.front()), "'; is it the right list?");
  std::vector<int32_t> labels;
  for (const auto& name : samples.classes) {
    if (by_position) {
      const int64_t position = parse_number<int64_t>(name).value();
      TORCH_CHECK(position < static_cast<int64_t>(classes.size()), "class ", position, " of '",
                  printable(samples.title()), "' is not one of ", classes.size(),
                  " classes (they count from 0)");
      labels.push_back(static_cast<int32_t>(position));
    } else {
      const auto found = positions.find(name);
      TORCH_CHECK(found != positions.end(), "class '", printable(name), "' of '", printable(samples.title()),
                  "' is not one of the ", classes.size(), " classes", the_nearest(name, classes));
      labels.push_back(found->second);
    }
  }
  samples.relabel(labels, classes);
}

}  // namespace tpgm

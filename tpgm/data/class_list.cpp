// Lists of classes, read and matched.
#include "tpgm/data/class_list.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "tpgm/core/names.h"
#include "tpgm/data/image_folder.h"
#include "tpgm/io/file.h"
#include "tpgm/io/untrusted.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

bool all_numbers(const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(), [](const auto& name) {
    return !name.empty() && name.size() < 8 && name.find_first_not_of("0123456789") == std::string::npos;
  });
}

}  // namespace

void check_different(std::vector<std::string> names, const std::string& call, const std::string& where) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  TORCH_CHECK(twice == names.end(), "[", call, "] ", where, " has the class '",
              printable(twice == names.end() ? "" : *twice), "' twice");
}

std::vector<std::string> load_class_list(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const auto parts = read_image_folder(path);
    TORCH_CHECK(parts.size() == 1 && !parts[0].classes.empty(), "[load_class_list] '", path.string(),
                "' is no folder of class folders");
    return parts[0].classes;
  }
  const MappedFile file(path, "load_class_list");
  std::istringstream lines{std::string(file.bytes())};
  for (std::string line; std::getline(lines, line);) {
    if (names.empty() && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) names.push_back(line);
  }
  TORCH_CHECK(!names.empty(), "[load_class_list] '", path.string(), "' is empty; expected a class a line");
  check_different(names, "load_class_list", fmt::format("'{}'", path.string()));
  return names;
}

std::vector<std::string> class_list_beside(const fs::path& file) {
  for (const char* name : {"classes.txt", "classnames.txt"}) {
    std::error_code ignored;
    const fs::path list = file.parent_path() / name;
    if (fs::is_regular_file(list, ignored)) return load_class_list(list);
  }
  return {};
}

void match_classes(Samples& samples, const std::vector<std::string>& classes, const std::string& call) {
  if (samples.classes == classes) return;
  std::unordered_map<std::string, int32_t> positions;
  for (size_t i = 0; i < classes.size(); ++i) positions.emplace(classes[i], static_cast<int32_t>(i));
  const bool by_position = all_numbers(samples.classes) && !all_numbers(classes);
  std::vector<int32_t> labels;
  for (const auto& name : samples.classes) {
    if (by_position) {
      const auto position = std::stol(name);
      TORCH_CHECK(position < static_cast<int64_t>(classes.size()), "[", call, "] class ", position, " of '",
                  samples.title(), "' is not one of ", classes.size(), " classes (they count from 0)");
      labels.push_back(static_cast<int32_t>(position));
    } else {
      const auto found = positions.find(name);
      TORCH_CHECK(found != positions.end(), "[", call, "] class '", printable(name), "' of '",
                  samples.title(), "' is not one of the ", classes.size(), " classes; the nearest is '",
                  printable(nearest(name, classes)), "'");
      labels.push_back(found->second);
    }
  }
  samples.relabel(labels, classes);
}

}  // namespace tpgm

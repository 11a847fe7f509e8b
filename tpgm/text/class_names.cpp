#include "tpgm/text/class_names.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"

namespace tpgm {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBlank = " \t\r\n";

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

bool is_utf8(const std::string& text) {
  try {
    Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

// Without blank lines at the end.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> folder_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator item(folder, failed);
       !failed && item != std::filesystem::directory_iterator(); item.increment(failed)) {
    std::error_code error;
    const std::string name = item->path().filename().string();
    if (item->is_directory(error) && !name.starts_with('.')) names.push_back(name);
  }
  TORCH_CHECK(!failed, "cannot read the folder '", folder.string(), "': ", failed.message());
  TORCH_CHECK(!names.empty(), "the folder '", folder.string(),
              "' has no folders in it; expected one for each class");
  static const std::set<std::string> kSplits{"train", "training", "val", "valid", "validation", "test"};
  const bool splits =
      std::all_of(names.begin(), names.end(), [](const auto& name) { return kSplits.contains(name); });
  TORCH_CHECK(!splits, "the folders of '", folder.string(), "' are its splits, ",
              fmt::format("{}", fmt::join(names, ", ")), ", not its classes; name one of them");
  std::sort(names.begin(), names.end());
  for (auto& name : names) std::replace(name.begin(), name.end(), '_', ' ');
  return names;
}

std::string name_in(const Json& value, const std::string& where) {
  const Json& name = value.is_array() && !value.empty() ? value.back() : value;
  if (!name.is_string())
    throw Malformed{fmt::format("{} is {}, expected a name", where, value.type_name()), "correct it"};
  return trimmed(name.get<std::string>());
}

std::vector<std::string> names_in(const Json& json) {
  std::vector<std::string> names;
  if (json.is_array()) {
    for (const auto& value : json) names.push_back(name_in(value, fmt::format("entry {}", names.size())));
    return names;
  }
  std::vector<std::pair<std::string, std::string>> items;
  for (const auto& [key, value] : json.items()) {
    items.emplace_back(key, name_in(value, fmt::format("'{}'", printable(key))));
  }
  const bool numbers = std::all_of(items.begin(), items.end(), [](const auto& item) {
    return !item.first.empty() && item.first.find_first_not_of("0123456789") == std::string::npos;
  });
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    return numbers ? natural_less(a.first, b.first) : a.first < b.first;
  });
  for (auto& item : items) names.push_back(std::move(item.second));
  return names;
}

}  // namespace

std::vector<std::string> parse_class_names(std::string_view file) {
  const std::string_view text = without_byte_order_mark(file);
  const std::string whole = trimmed(text);
  std::vector<std::string> names;
  const bool is_json = whole.starts_with('[') || whole.starts_with('{');
  if (is_json) {
    const Json json = Json::parse(whole, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded())
      throw Malformed{"it begins like JSON but is not JSON", "expected a name a line, or JSON"};
    names = names_in(json);
  } else {
    names = lines_of(text);
  }
  if (names.empty()) throw Malformed{"it has no names in it", "expected a name a line"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty())
      throw Malformed{fmt::format("the name {} is empty",
                                  is_json ? fmt::format("of class {}", i) : fmt::format("in line {}", i + 1)),
                      "every class needs one"};
    if (!is_utf8(names[i]))
      throw Malformed{fmt::format("'{}' is not UTF-8", printable(names[i])), "save the file as such"};
  }
  return names;
}

std::vector<std::string> parse_templates(std::string_view file) {
  constexpr const char* kExpected = "expected lines such as 'a photo of a {}.'";
  const std::string_view text = without_byte_order_mark(file);
  if (trimmed(text).starts_with('[')) throw Malformed{"it is JSON", kExpected};
  std::vector<std::string> templates;
  size_t number = 0;
  for (auto& line : lines_of(text)) {
    ++number;
    if (line.empty()) continue;
    if (!is_utf8(line)) throw Malformed{fmt::format("line {} is not UTF-8", number), "save the file as such"};
    if (line.find(kPlaceholder) == std::string::npos)
      throw Malformed{
          fmt::format("line {}, '{}', has no {{}} for the name of a class", number, printable(line)),
          kExpected};
    templates.push_back(std::move(line));
  }
  if (templates.empty()) throw Malformed{"it has no templates in it", kExpected};
  return templates;
}

std::vector<std::string> load_class_names(const std::filesystem::path& path) try {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return folder_names(path);
  const MappedFile file(path);
  try {
    return parse_class_names(file.bytes());
  } catch (const Malformed& malformed) {
    refuse(path, malformed);
  }
} catch (...) {
  rethrow_from("load_class_names");
}

std::vector<std::string> load_templates(const std::filesystem::path& path) try {
  const MappedFile file(path);
  try {
    return parse_templates(file.bytes());
  } catch (const Malformed& malformed) {
    refuse(path, malformed);
  }
} catch (...) {
  rethrow_from("load_templates");
}

}  // namespace tpgm

// Splits entries NAME=PATH, and looks for their paths.
#include "tpgm/train/test_paths.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "tpgm/data/sources/braces.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// Also the files of a pattern ("train-{000..146}.tar").
bool is_place(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return true;
  if (path.native().find('{') == std::string::npos) return false;
  try {
    return !expand_braces(path.string()).empty();
  } catch (const c10::Error&) {
    return false;
  }
}

// Without `.` and `..` if that is the same place, which it is not behind some symbolic links.
fs::path absolute_place(const fs::path& path) {
  const fs::path all = fs::absolute(path), plain = all.lexically_normal();
  std::error_code ignored;
  return fs::equivalent(all, plain, ignored) ? plain : all;
}

}  // namespace

std::optional<OtherTest> other_test(const std::string& test) {
  const size_t at = test.find('=');
  if (at == std::string::npos) return std::nullopt;
  return OtherTest{test.substr(0, at), test.substr(at + 1)};
}

std::vector<fs::path> places_of(const fs::path& path, const std::vector<fs::path>& folders) {
  std::vector<fs::path> places;
  if (path.empty()) return places;
  for (const auto& folder : folders) {
    auto place = folder / path;  // the path alone if it is absolute
    if (!is_place(place)) continue;
    place = absolute_place(place);
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(std::move(place));
  }
  return places;
}

std::vector<std::string> absolute_tests(std::vector<std::string> tests,
                                        const std::vector<fs::path>& folders) {
  for (auto& test : tests) {
    const auto other = other_test(test);
    if (!other) continue;
    const auto places = places_of(other->path, folders);
    if (places.empty() || places.front().native().find(',') != std::string::npos) continue;
    test = other->name + "=" + places.front().string();
  }
  return tests;
}

std::vector<fs::path> test_folders(const std::string& data_dir) {
  std::vector<fs::path> folders = {fs::current_path()};
  if (!data_dir.empty()) folders.emplace_back(data_dir);
  return folders;
}

}  // namespace tpgm

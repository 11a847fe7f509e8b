#include "tools/shared_files.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <system_error>

namespace tpgm::tools {

namespace fs = std::filesystem;

std::vector<fs::path> shared_folders(const std::string& name) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> folders;
  for (const char* root : {"../../..", "../../share/tpgm"}) {
    const auto folder = (program / root / name).lexically_normal();
    if (fs::is_directory(folder, error)) folders.push_back(folder);
  }
  return folders;
}

std::vector<fs::path> recipe_roots(const std::string& given) {
  std::error_code error;
  if (!given.empty()) {
    TORCH_CHECK(fs::is_directory(given, error), "[reproduce] `recipes` '", given, "' is not a folder");
    return {fs::absolute(given)};
  }
  auto roots = shared_folders("recipes");
  if (const auto here = fs::absolute("recipes");
      fs::is_directory(here, error) && std::find(roots.begin(), roots.end(), here) == roots.end())
    roots.insert(roots.begin(), here);
  return roots;
}

fs::path find_table(const std::string& name) {
  std::error_code error;
  for (const auto& root : recipe_roots()) {
    if (fs::is_regular_file(root / "tables" / name / "paper.csv", error)) return root / "tables" / name;
  }
  TORCH_CHECK(false, "the recipes 'tables/", name,
              "' are not beside this program; build or install tpgm again");
}

fs::path find_recipe(const std::string& given) {
  std::error_code error;
  const fs::path below = fs::path(given).lexically_normal().lexically_relative("recipes");
  if (fs::exists(given, error) || below.empty() || *below.begin() == "..") return given;
  for (const auto& root : shared_folders("recipes")) {
    if (fs::is_regular_file(root / below, error)) return root / below;
  }
  return given;
}

}  // namespace tpgm::tools

// Files that come with the program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpgm::tools {

/// Folders of that name in the sources this was built from and where it is installed; those that are there.
std::vector<std::filesystem::path> shared_folders(const std::string& name);

/// Where recipes may lie: `given` alone, which has to be a folder, or ./recipes and the shared_folders().
std::vector<std::filesystem::path> recipe_roots(const std::string& given = "");

}  // namespace tpgm::tools

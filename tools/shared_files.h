// Files that come with the program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpgm::tools {

/// The existing folders of that name, in the source tree of the build and in the installation.
std::vector<std::filesystem::path> shared_folders(const std::string& name);

/// Where recipes are searched: in `given`, which must be a folder; if it is empty, in ./recipes and
/// shared_folders().
std::vector<std::filesystem::path> recipe_roots(const std::string& given = "");

/// The folder of a table that comes with the program.
std::filesystem::path find_table(const std::string& name);

/// A recipe's file as given; "recipes/..." is also found beside the program, if there is none here.
std::filesystem::path find_recipe(const std::string& given);

}  // namespace tpgm::tools

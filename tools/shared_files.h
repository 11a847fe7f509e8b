// Files that come with the program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpgm::tools {

/// Folders of that name in the sources this was built from and where it is installed; those that are there.
std::vector<std::filesystem::path> shared_folders(const std::string& name);

}  // namespace tpgm::tools

#include "tools/shared_files.h"

#include <algorithm>
#include <system_error>

namespace tpgm::tools {

namespace fs = std::filesystem;

std::vector<fs::path> shared_folders(const std::string& name) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> folders;
  for (const fs::path& root : {fs::current_path(error), program / "../../..",  // as it is built
                               program / "../../share/tpgm"}) {                // as installed
    const auto folder = (root / name).lexically_normal();
    if (fs::is_directory(folder, error) && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  }
  return folders;
}

}  // namespace tpgm::tools

#include "tools/shared_files.h"

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

}  // namespace tpgm::tools

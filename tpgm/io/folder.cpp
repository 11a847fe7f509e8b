// Folders that are created under another name and renamed.
#include "tpgm/io/folder.h"

#include <c10/util/Exception.h>
#include <ftw.h>

#include <cstdio>
#include <utility>

#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// LibTorch 2.11 brings a std::filesystem::remove_all of its own, which crashes.
void remove_folder(const fs::path& folder) {
  ::nftw(
      folder.c_str(), [](const char* path, const struct stat*, int, FTW*) { return ::remove(path); }, 16,
      FTW_DEPTH | FTW_PHYS);
}

}  // namespace

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) paths.push_back(at->path());
  TORCH_CHECK(!error, "[entries_of] cannot read the folder '", printable(folder.string(), kMaxPath),
              "': ", error.message());
  return paths;
}

AtomicFolder::AtomicFolder(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "folder/"
  std::error_code error;
  const bool taken =
      fs::exists(path_, error) && !(fs::is_directory(path_, error) && fs::is_empty(path_, error));
  TORCH_CHECK(!taken, "[AtomicFolder] '", path_.string(),
              "' is there and is not an empty folder; remove it or name another");
  partial_ = fs::path(path_).concat(".partial");
  if (partial_.has_parent_path()) fs::create_directories(partial_.parent_path(), error);
  const bool made = fs::create_directory(partial_, error);  // false: another process has it
  TORCH_CHECK(!error, "[AtomicFolder] cannot make the folder '", partial_.string(), "': ", error.message());
  TORCH_CHECK(made, "[AtomicFolder] '", partial_.string(),
              "' is what another run left behind or is writing now; remove it or name another folder");
}

AtomicFolder::~AtomicFolder() {
  if (!committed_) remove_folder(partial_);
}

void AtomicFolder::commit() {
  std::error_code error;
  fs::rename(partial_, path_, error);
  TORCH_CHECK(!error, "[AtomicFolder] cannot rename '", partial_.string(), "' to '", path_.string(),
              "': ", error.message(), "; no part of it was left behind");
  committed_ = true;
}

}  // namespace tpgm

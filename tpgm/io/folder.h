// A folder that appears complete or not at all.
#pragma once

#include <filesystem>
#include <vector>

namespace tpgm {

/// What is in a folder, in no order. Throws an error that names the folder if it cannot be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// Files are written into "PATH.partial", which commit() renames to PATH. A killed process leaves
/// "PATH.partial" behind, and no PATH.
class AtomicFolder {
 public:
  /// Throws if `path` exists and is not an empty folder, if "PATH.partial" of another run exists, or if it
  /// cannot be created.
  explicit AtomicFolder(std::filesystem::path path);
  /// Removes "PATH.partial" unless commit() succeeded.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The folder to write into.
  const std::filesystem::path& partial() const { return partial_; }
  /// The last call on this object.
  void commit();

 private:
  std::filesystem::path path_, partial_;
  bool committed_ = false;
};

}  // namespace tpgm

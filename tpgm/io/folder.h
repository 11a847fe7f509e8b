// A folder that appears complete or not at all.
#pragma once

#include <filesystem>

namespace tpgm {

/// Its files are written into "PATH.partial", which commit() renames to PATH. A process that is killed leaves
/// that one behind, and nothing that looks whole.
class AtomicFolder {
 public:
  /// Throws when `path` exists and is not an empty folder, when another run's "PATH.partial" is there, or
  /// when it cannot be made.
  explicit AtomicFolder(std::filesystem::path path);
  /// Removes what was written unless commit() succeeded.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to write.
  const std::filesystem::path& partial() const { return partial_; }
  /// The last call on this object.
  void commit();

 private:
  std::filesystem::path path_, partial_;
  bool committed_ = false;
};

}  // namespace tpgm

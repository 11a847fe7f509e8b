// Metadata that records from which files a checkpoint was made.
#pragma once

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"
#include "tpgm/io/safetensors_writer.h"

namespace tpgm {

/// Metadata for a checkpoint made from `inputs`: the keys of the last input that are is_inherited(), and
///   keys::kFormat    "pt" if it has none, because Hugging Face's readers require it
///   keys::kVersion   the version of this library
///   keys::kInputs    JSON: name and format of each input, its files with their sizes and fingerprints, and the
///                    command that made it
/// It does not depend on time, machine or paths, so the same inputs give the same bytes.
class Provenance {
 public:
  /// Keeps the files of the checkpoints mapped. Throws in a build without xxhash.
  explicit Provenance(const std::vector<const Checkpoint*>& inputs);
  /// Stops reading the files.
  ~Provenance();
  Provenance(const Provenance&) = delete;
  Provenance& operator=(const Provenance&) = delete;

  /// Starts to compute the fingerprints in the background.
  void start();
  /// The metadata. Until wait() has returned, fingerprints are zeros of the same length.
  const Metadata& metadata() const noexcept { return metadata_; }
  /// Waits for the fingerprints and returns the metadata with them.
  const Metadata& wait();

 private:
  struct File {
    std::string name;
    std::shared_ptr<const MappedFile> mapping;
    std::string fingerprint;
  };
  struct Input {
    std::string name, format, made_by;
    std::vector<File> files;
  };

  void read();
  std::string inputs_text() const;

  std::vector<Input> inputs_;
  Metadata metadata_;
  std::atomic<bool> stop_{false};
  std::future<void> reading_;
};

/// The file name of a checkpoint, without its folder.
std::string name_of(const Checkpoint& checkpoint);

}  // namespace tpgm

// Where a checkpoint comes from, written into its metadata: what a model card should say.
#pragma once

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"
#include "tpgm/io/safetensors_writer.h"

namespace tpgm {

/// Metadata for what is made from `inputs`: all of the last input's own that is_inherited(), and
///   keys::kFormat    "pt" where it has none, because Hugging Face's readers ask for it
///   keys::kVersion   of this library
///   keys::kInputs    JSON: of each input the name, the format, the files with their sizes and fingerprints,
///                    and the command it was itself made by
/// Nothing in it depends on when, where or under which paths the work was done, so that the same inputs give
/// the same bytes.
class Provenance {
 public:
  /// The checkpoints' files stay mapped as long as this lives. Throws where there is no library for
  /// fingerprints.
  explicit Provenance(const std::vector<const Checkpoint*>& inputs);
  /// Stops the reading.
  ~Provenance();
  Provenance(const Provenance&) = delete;
  Provenance& operator=(const Provenance&) = delete;

  /// Begins to read the inputs for their fingerprints, all of them side by side, in the background.
  void start();
  /// With zeros in the place of fingerprints, until wait() was called; of the same length.
  const Metadata& metadata() const noexcept { return metadata_; }
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

/// The name of a checkpoint without the folders before it.
std::string name_of(const Checkpoint& checkpoint);

}  // namespace tpgm

// Where a checkpoint comes from, written into its metadata: what a model card should say.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"
#include "tpgm/io/safetensors_writer.h"

namespace tpgm {

/// Metadata for what is made from `inputs`. Nothing in it depends on when, where or under which paths the
/// work was done, so that the same inputs give the same bytes:
///   format         "pt", which Hugging Face's readers ask for
///   tpgm.version   of this library
///   tpgm.command   the command with its settings, inputs by their file names
///   tpgm.inputs    JSON: of each input the name, the format, the files with their sizes and fingerprints,
///   and
///                  the command it was itself made by
/// and all of the last input's own metadata, save what it has under tpgm.*.
///
/// The inputs are read for their fingerprints in the background; until wait() these are zeros of the same
/// length.
class Provenance {
 public:
  Provenance(std::string command, const std::vector<const Checkpoint*>& inputs);

  /// With placeholders in the place of fingerprints.
  const Metadata& metadata() const noexcept { return metadata_; }
  /// Once all fingerprints are known.
  const Metadata& wait();

 private:
  std::string inputs_text() const;

  struct File {
    size_t input;
    std::string name;
    size_t bytes;
    std::string fingerprint;
    std::future<std::string> pending;
  };
  struct Input {
    std::string name, format, made_by;
  };

  std::vector<Input> inputs_;
  std::vector<File> files_;
  Metadata metadata_;
};

}  // namespace tpgm

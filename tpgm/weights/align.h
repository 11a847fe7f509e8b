// Makes two checkpoints of one architecture comparable whose tensors have the names of different libraries.
#pragma once

#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"

namespace tpgm {

struct Alignment {
  /// What was done, for the user to read; empty if the names were left alone.
  std::vector<std::string> notes;
  /// Globs of parts that cannot be merged, because only one checkpoint has them (a text tower, a head) or the
  /// heads are for different classes.
  std::vector<std::string> own_parts;
};

/// Gives both checkpoints our names (those of a run, "backbone.*", if one is a run) if their names differ and
/// both are recognized: a downloaded checkpoint and a run of it, say, or a model as two libraries save
/// it. Throws if they are of different architectures. Otherwise changes nothing.
Alignment align_layouts(Checkpoint& a, Checkpoint& b);

}  // namespace tpgm

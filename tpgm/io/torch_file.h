// Reads PyTorch's files (.pt, .pth, .bin) without running code in them: zip archives of torch.save, its older
// stream of pickles, and TorchScript archives.
#pragma once

#include <torch/ordered_dict.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tpgm/io/file.h"
#include "tpgm/io/tensor_entry.h"

namespace tpgm {

class MemoryBudget;

/// A parsed file.
struct TorchFile {
  std::string format;  ///< "PyTorch archive", "PyTorch pickle (before 1.6)", "TorchScript archive"
  torch::OrderedDict<std::string, TensorEntry> entries{"Tensor"};
  std::vector<std::string> notes;  ///< what was unwrapped and what was ignored, for the user
};

/// True if the bytes begin like a PyTorch file.
bool looks_like_torch_file(std::string_view file);

/// The state dict of a PyTorch file. Nested checkpoints are unwrapped: {"state_dict": ..., "epoch": ...}
/// gives its first entry and a note. `key` selects another entry ("state_dict_ema"; dots descend into nested
/// ones). A TorchScript archive gives what module.state_dict() gives in Python.
///
/// Throws Malformed, with the name, for all objects but tensors, parameters, plain containers and a few
/// harmless records.
TorchFile parse_torch_file(std::string_view file, const std::string& key = "");
/// The same, within a budget that all files of a checkpoint share.
TorchFile parse_torch_file(std::string_view file, const std::string& key, MemoryBudget& budget);

}  // namespace tpgm

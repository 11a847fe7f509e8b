// PyTorch's own files (.pt, .pth, .bin), read without running them: torch.save's archives and their
// predecessor, a stream of pickles, and TorchScript archives.
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

/// What is in the file, once it is parsed.
struct TorchFile {
  std::string format;  ///< "PyTorch archive", "PyTorch pickle (before 1.6)", "TorchScript archive"
  torch::OrderedDict<std::string, TensorEntry> entries{"Tensor"};
  std::vector<std::string> notes;  ///< what was unwrapped and what was left out, for the user to read
};

/// True if the bytes begin like a file of PyTorch's.
bool looks_like_torch_file(std::string_view file);

/// The state dict of a file of PyTorch's. Nested checkpoints are unwrapped: of {"state_dict": ..., "epoch":
/// ...} the first is taken, and `notes` say so. `key` names the entry to take instead ("state_dict_ema";
/// dots descend). A TorchScript archive gives what module.state_dict() gives in Python.
///
/// Throws Malformed on anything but tensors, parameters, plain containers and a few inert records, by name.
TorchFile parse_torch_file(std::string_view file, const std::string& key = "");
/// The same, within a budget that other files of the checkpoint use as well.
TorchFile parse_torch_file(std::string_view file, const std::string& key, MemoryBudget& budget);

}  // namespace tpgm

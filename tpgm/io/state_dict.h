// Names ↔ tensors: a module's state, out of it and into it, by way of a file or not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/io/metadata.h"
#include "tpgm/io/named_tensors.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace tpgm {

/// The parameters of `module`, then its buffers, each in the order of registration. Detached, but not copied:
/// the tensors change when the module does. Clone them to keep a moment.
NamedTensors state_dict(const torch::nn::Module& module);

/// The tensors whose names begin with `prefix` ("visual."), without it; and the way back.
NamedTensors below(const NamedTensors& tensors, const std::string& prefix);
NamedTensors with_prefix(const NamedTensors& tensors, const std::string& prefix);

/// The tensors of a checkpoint: a file or folder of any kind that Checkpoint reads. On the CPU and not yet
/// read from the disk. What was unwrapped on the way is a warning (TORCH_WARN).
NamedTensors load_state_dict(const std::filesystem::path& path);

/// Copies `tensors` into the parameters and buffers of `module`, by name, whatever their order.
///
/// Strict: every name of the module must be in `tensors`, every name of `tensors` in the module, with equal
/// shapes. The dtype is converted to the module's, except where values would be lost wholesale (complex →
/// real, floating → integral, anything → bool), which is an error. `exclude` are shell globs (fnmatch(3),
/// flags 0, so that `*` also matches dots); names they match are skipped on both sides, and one that matches
/// nothing is an error.
///
/// Everything is checked before the first byte is copied: when this throws, the module is as it was.
/// Parameters keep their identity, device, dtype and requires_grad. Parameters tied under two names need
/// both, and take the value of the later one; exclude the name a file does not have. `file` is where the
/// tensors of a whole model came from, for errors to name.
void load_state_dict(torch::nn::Module& module, const NamedTensors& tensors,
                     const std::vector<std::string>& exclude = {}, const std::filesystem::path& file = {});

/// load_state_dict(module, load_state_dict(path), exclude), with errors that name the file. A prefix such as
/// "module." is cut off the file's names unless the model's own names have it.
void load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                  const std::vector<std::string>& exclude = {});

/// Writes state_dict(module) to `file` as safetensors; see save_safetensors for what is guaranteed.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& file,
                  const Metadata& metadata = {});

}  // namespace tpgm

// State dicts of modules: read, loaded, and saved to files.
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

class Checkpoint;

/// The parameters of `module`, then its buffers, each in the order of registration. Detached, but not copied:
/// clone the tensors to keep their present values.
NamedTensors state_dict(const torch::nn::Module& module);

/// The tensors whose names begin with `prefix` ("visual."), with the prefix removed; with_prefix() adds it.
NamedTensors below(const NamedTensors& tensors, const std::string& prefix);
NamedTensors with_prefix(const NamedTensors& tensors, const std::string& prefix);

/// The tensors of a file or folder in any format that Checkpoint reads: on the CPU, as views of the mapped
/// file. Warns (TORCH_WARN) about what was unwrapped.
NamedTensors load_state_dict(const std::filesystem::path& path);

/// Copies `tensors` into the parameters and buffers of `module`, by name, whatever their order.
///
/// Strict: module and `tensors` must have the same names and shapes. Values are converted to the dtypes of
/// the module, except for conversions that destroy them (complex → real, floating → integral, anything →
/// bool), which are errors. `exclude` are shell globs (fnmatch(3), flags 0, so `*` also matches dots): names
/// that one matches are skipped on both sides, and a glob that matches nothing is an error.
///
/// Everything is checked before the first byte is copied: if this throws, the module is unchanged. Parameters
/// keep their identity, device, dtype and requires_grad. A parameter tied under two names needs both, and
/// takes the value of the later one; exclude the name that a file does not have. Errors name `file` as the
/// origin of the tensors.
void load_state_dict(torch::nn::Module& module, const NamedTensors& tensors,
                     const std::vector<std::string>& exclude = {}, const std::filesystem::path& file = {});

/// load_state_dict(module, load_state_dict(path), exclude), with errors that name the file. A prefix such as
/// "module." is removed from the names in the file unless the names of the module have it.
void load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                  const std::vector<std::string>& exclude = {});
/// The same for a checkpoint that is open already.
void load_weights(torch::nn::Module& module, Checkpoint checkpoint,
                  const std::vector<std::string>& exclude = {});

/// Writes state_dict(module) to `file`; see save_safetensors().
void save_weights(const torch::nn::Module& module, const std::filesystem::path& file,
                  const Metadata& metadata = {});

}  // namespace tpgm

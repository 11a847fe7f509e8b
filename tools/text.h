// Text that commands on checkpoints share: shapes, types, pairs, notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/base/byte_count.h"
#include "tpgm/base/numbers.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/io/file.h"

namespace tpgm::tools {

/// "[768,3,32,32]".
std::string shape_text(const std::vector<int64_t>& shape);
/// "F32"; LibTorch's name for types that safetensors does not have.
std::string dtype_text(at::ScalarType dtype);
/// "visual.*=0.3" → its two sides; throws std::invalid_argument. The last '=' counts.
std::pair<std::string, std::string> parse_pair(const std::string& text);

/// Prints the notes of a checkpoint, such as what was unwrapped, to stderr.
void print_notes(const char* command, const Checkpoint& checkpoint);
bool is_folder(const std::filesystem::path& path);
/// What TMPDIR names, or /tmp. Never throws: a folder that is missing is an error of the command that writes there.
std::filesystem::path temporary_folder();
/// The size of all tensors in bytes.
size_t bytes_of(const Checkpoint& checkpoint);

}  // namespace tpgm::tools

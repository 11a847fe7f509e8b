#include "tools/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <stdexcept>

#include "tools/command.h"
#include "tpgm/io/dtypes.h"

namespace tpgm::tools {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

std::string dtype_text(at::ScalarType dtype) {
  const auto name = dtype_name(dtype);
  return name.empty() ? c10::toString(dtype) : std::string(name);
}

std::pair<std::string, std::string> parse_pair(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    throw std::invalid_argument(fmt::format("'{}' has no two sides; write it like 'left=right'", text));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void print_notes(const char* command, const Checkpoint& checkpoint) {
  for (const auto& note : checkpoint.notes()) {
    say(fmt::format("tpgm {}: '{}': {}\n", command, checkpoint.path().string(), note));
  }
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

std::filesystem::path temporary_folder() {
  std::error_code error;
  if (auto folder = std::filesystem::temp_directory_path(error); !error) return folder;
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

size_t bytes_of(const Checkpoint& checkpoint) {
  size_t bytes = 0;
  for (const auto& name : checkpoint.names()) bytes += checkpoint.entry(name).nbytes();
  return bytes;
}

}  // namespace tpgm::tools

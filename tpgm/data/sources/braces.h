// Expands brace patterns such as "data-{000..003}.tar" into paths.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpgm {

/// The files of a pattern such as "data-{000..003}.tar" or "{train,val}.tar". A path without braces is
/// returned as it is. Throws c10::Error if a file does not exist.
std::vector<std::filesystem::path> expand_braces(const std::string& pattern);

/// The names that such a pattern stands for, whether there are files or not: at most a million, of 256 MiB in all. Throws
/// Malformed.
std::vector<std::string> parse_braces(const std::string& pattern);

}  // namespace tpgm

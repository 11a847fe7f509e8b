// Many files by one pattern.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpgm {

/// "data-{000..003}.tar", "{train,val}.tar": the files of a pattern, each of which must exist; a path without
/// braces is itself. Throws c10::Error.
std::vector<std::filesystem::path> expand_braces(const std::string& pattern);

}  // namespace tpgm

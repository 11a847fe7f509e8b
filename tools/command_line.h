#pragma once

#include <string>

namespace tpgm::tools {

/// What this process was started with, as it can be pasted into a shell.
std::string command_line();

}  // namespace tpgm::tools

// The command line of this process, for run folders and tables.
#pragma once

#include <string>

namespace tpgm::tools {

/// The command line of this process, as it can be pasted into a shell.
std::string command_line();

}  // namespace tpgm::tools

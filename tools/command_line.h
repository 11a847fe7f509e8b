// Command lines as text: of this process, for run folders and tables, and of one that repeats a run.
#pragma once

#include <filesystem>
#include <string>

namespace tpgm::tools {

/// The command line of this process, as it can be pasted into a shell.
std::string command_line();

/// The command that repeats the run of a recipe, for reports.
std::string repeat_command(const std::filesystem::path& recipe);

}  // namespace tpgm::tools

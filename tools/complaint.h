// What is wrong with a command line, in plain words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tpgm::tools {

/// The error about the first word that should be a command or subcommand and is none, with what was probably
/// meant; empty if there is no such word. `words` are those after "tpgm".
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words);

/// What is wrong with the options and arguments of `command`, in place of CLI11's words.
std::string complaint_of(const CLI::ParseError& error, const CLI::App& command,
                         const std::vector<std::string>& words);

}  // namespace tpgm::tools

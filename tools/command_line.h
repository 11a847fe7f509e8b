// Command lines as text that can be pasted into a shell, for run folders and the metadata of outputs.
#pragma once

#include <string>

namespace tpgm::tools {

/// `word` between single quotes, in which a shell takes it as it is; an apostrophe in it becomes '\''.
std::string in_quotes(const std::string& word);
/// The same, or `word` itself where a shell needs no quotes.
std::string shell_word(const std::string& word);

/// The command line of this process.
std::string command_line();

}  // namespace tpgm::tools

// Text for a shell's command line.
#pragma once

#include <string>
#include <string_view>

namespace tpgm {

/// `word` between single quotes, in which a shell takes it as it is; an apostrophe in it becomes '\''.
inline std::string shell_quoted(std::string_view word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

/// The same, or `word` itself if a shell needs no quotes for it.
inline std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`&|;<>()*?[]{}#~!") == std::string::npos;
  return plain ? word : shell_quoted(word);
}

}  // namespace tpgm

#include "tools/command_line.h"

#include <fstream>
#include <utility>

#include "tpgm/base/untrusted.h"

namespace tpgm::tools {

std::string in_quotes(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`&|;<>()*?[]{}#~!") == std::string::npos;
  return plain ? word : in_quotes(word);
}

std::string command_line() {
  std::ifstream stream("/proc/self/cmdline", std::ios::binary);
  std::string text = "tpgm", word;
  bool first = true;
  while (std::getline(stream, word, '\0')) {
    if (!std::exchange(first, false)) text += " " + shell_word(word);
  }
  return printable(text, kMaxPath);
}

}  // namespace tpgm::tools

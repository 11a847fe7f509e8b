#include "tools/command_line.h"

#include <fstream>
#include <utility>

#include "tpgm/base/shell.h"
#include "tpgm/base/untrusted.h"

namespace tpgm::tools {

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

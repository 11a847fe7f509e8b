#include "tools/command_line.h"

#include <fmt/format.h>

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
  return printable(text, text.size());  // all of it: one that is cut could not be run again
}

std::string repeat_command(const std::filesystem::path& recipe) {
  return fmt::format("tpgm train -c {} -o again", shell_word(recipe.string()));
}

}  // namespace tpgm::tools

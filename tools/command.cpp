// How commands end.
#include "tools/command.h"

#include <fmt/format.h>

#include <cstdio>

namespace tpgm::tools {

std::string error_text(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

int run(const char* name, const Run& command) {
  try {
    return command();
  } catch (const c10::Error& error) {
    fmt::print(stderr, "tpgm {}: {}\n", name, error_text(error));
  } catch (const std::exception& error) {
    fmt::print(stderr, "tpgm {}: {}\n", name, error.what());
  }
  return 1;
}

}  // namespace tpgm::tools

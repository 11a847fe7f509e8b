// How commands end.
#include "tools/command.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tpgm::tools {

void say(const std::string& text) { std::fputs(text.c_str(), stderr); }

std::string error_text(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

int run(const char* name, const Run& command) {
  int status = 1;
  try {
    status = command();
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    say(fmt::format("tpgm {}: cannot write to stdout: {}\n", name, std::strerror(errno)));
    return 1;
  } catch (const UsageError& error) {
    say(fmt::format("tpgm {}: {}\n", name, error.what()));
    return 2;
  } catch (const c10::Error& error) {
    say(fmt::format("tpgm {}: {}\n", name, error_text(error)));
  } catch (const std::exception& error) {
    say(fmt::format("tpgm {}: {}\n", name, error.what()));
  }
  return 1;
}

}  // namespace tpgm::tools

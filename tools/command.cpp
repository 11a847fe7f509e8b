// How commands run and report errors.
#include "tools/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>

#include "tools/interrupt.h"
#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"

namespace tpgm::tools {

void say(const std::string& text) {
  const std::string words = with_flags(text);
  std::string safe;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find('\n', begin), words.size());
    safe += printable(std::string_view(words).substr(begin, end - begin), words.size());
    if (end < words.size()) safe += '\n';
    begin = end + 1;
  }
  std::fputs(safe.c_str(), stderr);
}

void say_line(const std::string& command, std::string text) {
  bool in_list = false;  // whose lines are indented
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    const bool item = text.compare(at + 1, 2, "  ") == 0;
    if (!item && !in_list) text[at] = '?';
    in_list = item;
  }
  say(fmt::format("tpgm {}: {}\n", command, text));
}

std::string with_flags(const std::string& text) {
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find('`'); at != std::string::npos; at = text.find('`', begin)) {
    const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_", at + 1);
    result += text.substr(begin, at - begin);
    begin = end == std::string::npos ? text.size() : end;
    std::string key = text.substr(at + 1, begin - at - 1);
    if (key.empty() || begin == text.size() || text[begin] != '`') {
      result += '`' + key;  // not the key of an option
      continue;
    }
    std::replace(key.begin(), key.end(), '_', '-');
    result += "--" + key;
    ++begin;
  }
  return result + text.substr(begin);
}

namespace {

constexpr const char* kNoMemory =
    "out of memory; where there are images, smaller ones (`max-pixels`) and smaller batches (`batch-size`) "
    "need "
    "less";

int status_of(const std::string& name, const Run& command) {
  int status = 1;
  try {
    status = command();
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    say_line(name, fmt::format("cannot write to stdout: {}", std::strerror(errno)));
    return 1;
  } catch (const UsageError& error) {
    say_line(name, error.what());
    return 2;
  } catch (const c10::Error& error) {
    say_line(name, error_text(error));
  } catch (const std::bad_alloc&) {
    say_line(name, kNoMemory);
  } catch (const std::length_error&) {  // of a container that could never be so large
    say_line(name, kNoMemory);
  } catch (const std::exception& error) {
    say_line(name, error.what());
  }
  return 1;
}

}  // namespace

int run(const std::string& name, const Run& command) {
  const int status = status_of(name, command);
  return status != 0 && interrupt_status() != 0 ? interrupt_status() : status;
}

}  // namespace tpgm::tools

// LibTorch's errors as part of ours.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace tpgm {

/// The first line of what LibTorch says; the rest is a trace of its own.
inline std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  // Errors inside a script begin with where, and end with what.
  const std::size_t last = text.find_last_not_of('\n');
  const std::size_t begin =
      text.starts_with("The following operation failed") ? text.rfind('\n', last) + 1 : 0;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace tpgm

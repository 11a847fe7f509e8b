// Shortens LibTorch's error messages, so that ours can quote them.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <string_view>

namespace tpgm {

/// The first line of what LibTorch says; the rest is a trace of its own.
inline std::string short_message(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  // Errors inside TorchScript begin with a trace of the script; the message follows.
  constexpr std::string_view kWhat = "\nRuntimeError: ";
  if (const auto at = text.rfind(kWhat);
      text.starts_with("The following operation failed") && at != std::string::npos)
    text.erase(0, at + kWhat.size());
  return text.substr(0, text.find('\n'));
}

}  // namespace tpgm

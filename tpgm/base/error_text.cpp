#include "tpgm/base/error_text.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"

namespace tpgm {

std::string error_text(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  // LibTorch's own text is about its internals.
  constexpr std::string_view kNoMemory = "can't allocate memory: you tried to allocate ";
  if (const size_t at = text.find(kNoMemory); at != std::string::npos) {
    const double bytes = std::strtod(text.c_str() + at + kNoMemory.size(), nullptr);
    return fmt::format("out of memory: cannot allocate {:.1f} GB; if this is a batch, lower `batch-size`",
                       bytes / 1e9);
  }
  return std::string(without_call(text));
}

std::string json_reason(const std::exception& error) {
  std::string_view text = error.what();
  if (const size_t end = text.find("] ");
      text.starts_with("[json.exception.") && end != std::string_view::npos)
    text.remove_prefix(end + 2);
  return printable(text, 200);
}

std::string short_message(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  // Errors inside TorchScript begin with a trace of the script; the message follows.
  constexpr std::string_view kWhat = "\nRuntimeError: ";
  if (const auto at = text.rfind(kWhat);
      text.starts_with("The following operation failed") && at != std::string::npos)
    text.erase(0, at + kWhat.size());
  return text.substr(0, text.find('\n'));
}

}  // namespace tpgm

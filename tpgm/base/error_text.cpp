#include "tpgm/base/error_text.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "tpgm/base/call.h"

namespace tpgm {

std::string error_text(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  // LibTorch's own text is about its internals.
  constexpr std::string_view kNoMemory = "can't allocate memory: you tried to allocate ";
  if (const size_t at = text.find(kNoMemory); at != std::string::npos) {
    const double bytes = std::strtod(text.c_str() + at + kNoMemory.size(), nullptr);
    return fmt::format(
        "out of memory: there are no {:.1f} GB to be had at once; if they are a batch, make it smaller",
        bytes / 1e9);
  }
  return std::string(without_call(text));
}

}  // namespace tpgm

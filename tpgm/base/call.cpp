#include "tpgm/base/call.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <typeinfo>

namespace tpgm {

void rethrow_from(const std::string& call) {
  try {
    throw;
  } catch (const c10::Error& error) {
    if (typeid(error) != typeid(c10::Error)) throw;  // subclasses of c10::Error keep their type
    c10::Error named(fmt::format("[{}] {}", call, without_call(error.msg())), error.backtrace());
    for (const auto& context : error.context()) named.add_context(context);
    throw named;
  }
}

std::string_view without_call(std::string_view text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  if (end == std::string_view::npos) return text;
  const auto name = text.substr(1, end - 1);
  const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == ':' || letter == ' ';
  });
  return is_name ? text.substr(end + 2) : text;
}

}  // namespace tpgm

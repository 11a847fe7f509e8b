// What an error says to a user.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace tpgm {

/// The message without the name of the call that it begins with ("[load_weights] ...") and without a
/// backtrace.
std::string error_text(const c10::Error& error);

}  // namespace tpgm

// Errors as text for users.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace tpgm {

/// The message without the name of the call in front ("[load_weights] ...") and without a backtrace.
std::string error_text(const c10::Error& error);

}  // namespace tpgm

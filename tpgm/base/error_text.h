// Errors as text for users.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace tpgm {

/// The message without the name of the call in front ("[load_weights] ...") and without a backtrace.
std::string error_text(const c10::Error& error);

/// The first line of one of LibTorch's errors, for a message of ours to quote. The rest is a trace.
std::string short_message(const std::exception& error);

/// Why a text is not JSON: what the parser says, without the name and number of its exception in front.
std::string json_reason(const std::exception& error);

}  // namespace tpgm

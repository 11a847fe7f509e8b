// Whose error it is. An error says what is wrong, what was expected and the way out; the name of the function
// that the user called is put in front of it once, where that function begins:
//
//   Converted convert_checkpoint(...) try {
//     ...
//   } catch (...) {
//     rethrow_from("convert_checkpoint");
//   }
//
// makes "cannot open 'x.pt': No such file" into "[convert_checkpoint] cannot open 'x.pt': No such file". Of
// functions that call each other the outermost is named. What throws by itself and has no such block may
// write its "[name] " by hand; helpers that a user never calls write none.
#pragma once

#include <string>
#include <string_view>

namespace tpgm {

/// Of a catch (...): throws on what was caught; a c10::Error with `call` in front, in place of a name that is
/// there.
[[noreturn]] void rethrow_from(const std::string& call);

/// The text of an error without the name in front of it.
std::string_view without_call(std::string_view text);

}  // namespace tpgm

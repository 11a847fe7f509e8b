// Puts the name of the called function in front of errors. Errors themselves say what is wrong, what was
// expected and the way out; a public function adds its name in one place:
//
//   Converted convert_checkpoint(...) try {
//     ...
//   } catch (...) {
//     rethrow_from("convert_checkpoint");
//   }
//
// turns "cannot open 'x.pt': No such file" into "[convert_checkpoint] cannot open 'x.pt': No such file". If
// such functions call each other, the outermost is named. A public function without such a block writes
// "[name] " into its messages itself; helpers that users never call write no name.
//
// Only three helpers are told the name, as `owner`: Displacements, FiniteFlag and HeldOutLoss in core. Every
// hook of a method can throw their errors, up to a step late. A block in each hook would be longer, and would
// also put the name in front of errors from the user's closures.
#pragma once

#include <string>
#include <string_view>

namespace tpgm {

/// To be called in a catch (...): rethrows the exception. In a c10::Error `call` replaces the name in front,
/// if any.
[[noreturn]] void rethrow_from(const std::string& call);

/// The text of an error without the "[name] " in front.
std::string_view without_call(std::string_view text);

}  // namespace tpgm

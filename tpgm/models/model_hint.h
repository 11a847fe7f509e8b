// What to do in place of a model name that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// A name of other libraries, in lower case: a '*' is any text, and a '#' a whole number, which goes into the
/// next "{}" of the description.
struct OtherName {
  std::string_view theirs;
  /// The same model as parse_model() reads it. Empty: nothing here is near, and no name is suggested. Null: it
  /// is another architecture.
  const char* ours;
};
/// The first row that matches a name counts.
const std::vector<OtherName>& other_names();

/// The end of a message about the unknown model `name`, for names of timm, torchvision and open_clip: the same
/// model here ("; did you mean 'clip-vit-b-16'?"), with its sizes where it has no name here, or that its
/// architecture is not there; else as did_you_mean() of `known`. A name that is known to be another model's gets
/// no suggestion.
std::string model_hint(const std::string& name, const std::vector<std::string>& known);

}  // namespace tpgm

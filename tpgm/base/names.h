// Names of tensors: globs, suggestions for misspelled names, natural order, and the block a name belongs to.
#pragma once

#include <string>
#include <vector>

namespace tpgm {

/// In lower case: ASCII letters change, and no other bytes.
std::string lower(std::string text);

/// True if the whole of `name` matches the shell pattern `glob` (`*` crosses dots: 'head.*' is all of the
/// head).
bool matches(const std::string& glob, const std::string& name);

/// The one of `words` that a misspelled `word` probably meant; empty if none is near: at most about a third of
/// the letters may differ, and four. Swapped neighbors count as one letter, upper case is lower case, and a
/// '*' in `word` stands for any letters.
std::string nearest(const std::string& word, const std::vector<std::string>& words);

/// The end of a message about an unknown `word`: "; did you mean 'NEAREST'?", with `prefix` (such as "--") in
/// front of the name; empty if none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& words,
                         const std::string& prefix = "");
/// The same for what is not a misspelled keyword, such as names of classes: "; the nearest is 'NEAREST'".
std::string the_nearest(const std::string& word, const std::vector<std::string>& words);

/// Throws, with the nearest name as a hint, if one of the `globs` matches none of the `names`.
void check_globs(const std::string& option, const std::vector<std::string>& globs,
                 const std::vector<std::string>& names);

/// True if one of the globs matches the name.
bool matches_any(const std::vector<std::string>& globs, const std::string& name);

/// True if `a` comes before `b` with runs of digits compared as numbers: "layer.2" before "layer.10".
bool natural_less(const std::string& a, const std::string& b);

/// The residual or transformer block a parameter belongs to, from its name: everything up to the first part
/// that is a number ("layer1.0" of layer1.0.conv2.weight, "encoder.layers.3" of encoder.layers.3.mlp.0.bias)
/// or ends in one after an underscore ("encoder_layer_3"); the module's own name where no part is.
std::string block_name(const std::string& name);

}  // namespace tpgm

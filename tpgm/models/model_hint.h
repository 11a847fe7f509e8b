// What to do in place of a model name that is not known.
#pragma once

#include <string>
#include <vector>

namespace tpgm {

/// The end of a message about the unknown model `name`, for names of timm, torchvision and open_clip: the same
/// model here ("; did you mean 'clip-vit-b-16'?"), with its sizes where it has no name here, or that its
/// architecture is not there; else as did_you_mean() of `known`.
std::string model_hint(const std::string& name, const std::vector<std::string>& known);

}  // namespace tpgm

#include "tpgm/models/model_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <string_view>
#include <utility>

#include "tpgm/base/names.h"
#include "tpgm/models/families.h"

namespace tpgm {
namespace {

// Names in lower case that follow no rule.
constexpr std::pair<std::string_view, const char*> kSameModels[] = {
    {"vit_base_patch32_clip_224", "clip-vit-b-32"},
    {"vit_base_patch32_clip_quickgelu_224", "clip-vit-b-32"},
    {"vit_large_patch14_clip_336", "clip-vit-l-14-336"},
    {"vit_large_patch14_clip_quickgelu_336", "clip-vit-l-14-336"},
    {"vit-b-32", "clip-vit-b-32"},  // open_clip's names; timm's have underscores
    {"vit-b-16", "clip-vit-b-16"},
    {"vit-l-14", "clip-vit-l-14"},
    {"vit-l-14-336", "clip-vit-l-14-336"},
    {"resnet50_clip", "clip-rn50"},
    {"resnet101_clip", "clip-rn101"},
    {"resnet152", "resnet:layers=3-8-36-3,block=bottleneck"},
    {"rn50x4", "clip-resnet:image_size=288,layers=4-6-10-6,width=80,embedding=640,text_width=640"},
    {"rn50x16", "clip-resnet:image_size=384,layers=6-8-18-8,width=96,embedding=768,text_width=768"},
    {"rn50x64", "clip-resnet:image_size=448,layers=3-15-36-10,width=128,embedding=1024,text_width=1024"},
};

// Those that are a family here by now are passed over.
constexpr std::string_view kOtherArchitectures[] = {
    "alexnet",    "beit",   "cait",       "coat",      "coca",      "convmixer", "convnext",    "davit",
    "densenet",   "dinov2", "dinov3",     "distilled", "efficient", "eva0",      "ghostnet",    "googlenet",
    "hiera",      "hrnet",  "inception",  "levit",     "maxvit",    "mixer",     "mnasnet",     "mobilenet",
    "mobilevit",  "nfnet",  "pvt",        "regnet",    "resnext",   "resmlp",    "rexnet",      "senet",
    "shufflenet", "siglip", "squeezenet", "swin",      "tinyvit",   "vgg",       "wide_resnet", "xception",
};

// A size of timm's ViTs and DeiTs: vit_base_patch16_384.
struct VitSize {
  std::string_view word;
  const char *vit, *clip;  // the model here; null: none
  int patch, clip_patch, image;
};
constexpr VitSize kVitSizes[] = {
    {"tiny", "vit:width=192,depth=12,heads=3", nullptr, 0, 0, 0},
    {"small", "vit-s-16", nullptr, 16, 0, 224},
    {"base", "vit-b-16", "clip-vit-b-16", 16, 16, 224},
    {"large", "vit-l-16", "clip-vit-l-14", 16, 14, 224},
    {"huge", "vit:width=1280,depth=32", nullptr, 0, 0, 0},
};

// The description of a ViT by timm's name; empty if there is none.
std::string vit_of(const std::string& name) {
  static const std::regex kName(
      "(?:vit|deit)_([a-z]+)_patch([0-9]{1,3})(_clip)?(?:_quickgelu)?_([0-9]{1,4})");
  std::smatch match;
  if (!std::regex_match(name, match, kName)) return "";
  const bool clip = match[3].matched;
  for (const auto& size : kVitSizes) {
    const char* model = clip ? size.clip : size.vit;
    if (size.word != match[1].str() || model == nullptr) continue;
    const int patch = std::stoi(match[2]), image = std::stoi(match[4]);
    std::vector<std::string> others;
    if (patch != (clip ? size.clip_patch : size.patch)) others.push_back(fmt::format("patch={}", patch));
    if (image != size.image) others.push_back(fmt::format("image_size={}", image));
    if (others.empty()) return model;
    const bool has_sizes = std::string_view(model).find(':') != std::string_view::npos;
    return fmt::format("{}{}{}", model, has_sizes ? ',' : ':', fmt::join(others, ","));
  }
  return "";
}

// In lower case, without timm's tag (".openai") and open_clip's suffix.
std::string plain(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  name.erase(std::min(name.find('.'), name.size()));
  if (name.ends_with("-quickgelu")) name.erase(name.size() - 10);
  return name;
}

}  // namespace

std::string model_hint(const std::string& name, const std::vector<std::string>& known) {
  const std::string word = plain(name);
  std::string same = vit_of(word);
  for (const auto& [theirs, ours] : kSameModels) {
    if (word == theirs) same = ours;
  }
  if (!same.empty()) return fmt::format("; did you mean '{}'?", same);
  for (const auto architecture : kOtherArchitectures) {
    const bool is_family = std::any_of(families().begin(), families().end(), [&](const Family& family) {
      return family.name.starts_with(architecture);
    });
    if (!is_family && word.find(architecture) != std::string::npos)
      return ": its architecture is not one of those here, but script:FILE takes any TorchScript module "
             "(docs/models.md)";
  }
  return did_you_mean(word, known);
}

}  // namespace tpgm

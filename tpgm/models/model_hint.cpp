#include "tpgm/models/model_hint.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "tpgm/base/names.h"
#include "tpgm/models/families.h"

namespace tpgm {
namespace {

constexpr size_t kLongestName = 100, kLongestNumber = 4;
constexpr const char* kNotHere = nullptr;  // another architecture
constexpr const char* kNothing = "";       // a model that no name here is near to

// Whether `name` is as `pattern` says; with the numbers that '#' stand for.
bool fits(std::string_view pattern, std::string_view name, std::vector<std::string>& numbers) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
      if (fits(pattern.substr(1), name.substr(skipped), numbers)) return true;
    }
    return false;
  }
  if (pattern.front() == '#') {
    const auto end =
        std::find_if_not(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
    const auto digits = static_cast<size_t>(end - name.begin());
    if (digits == 0 || digits > kLongestNumber) return false;
    const size_t before = numbers.size();
    numbers.emplace_back(name.substr(0, digits));
    if (fits(pattern.substr(1), name.substr(digits), numbers)) return true;
    numbers.resize(before);
    return false;
  }
  return !name.empty() && name.front() == pattern.front() && fits(pattern.substr(1), name.substr(1), numbers);
}

// What the table says of a name; nothing if it does not have it. A family that was added here is no other
// architecture, and neither are its variants.
std::optional<std::string> find_name(const std::string& name, bool& is_other) {
  is_other = false;
  for (const auto& [theirs, ours] : other_names()) {
    std::vector<std::string> numbers;
    if (!fits(theirs, name, numbers)) continue;
    if (ours == kNotHere) {
      std::string word(theirs);
      std::erase(word, '*');
      const bool here = std::any_of(families().begin(), families().end(),
                                    [&](const Family& family) { return family.name.starts_with(word); });
      if (here) continue;
      is_other = true;
      return "";
    }
    std::string text = ours;
    for (const auto& number : numbers) {
      if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, number);
    }
    return text;
  }
  return std::nullopt;
}

// In lower case, without timm's tag (".openai") and what says that it is a CLIP with QuickGELU. DeiT's are ViTs.
std::string plain(std::string name) {
  name = lower(std::move(name));
  name.erase(std::min(name.find('.'), name.size()));
  for (const std::string quick : {"-quickgelu", "_quickgelu"}) {
    if (const size_t at = name.find(quick); at != std::string::npos) name.erase(at, quick.size());
  }
  if (name.starts_with("deit_")) name.replace(0, 5, "vit_");
  return name;
}

}  // namespace

const std::vector<OtherName>& other_names() {
  static const std::vector<OtherName> kNames{
      {"vit_base_patch32_clip_224", "clip-vit-b-32"},
      {"vit_base_patch32_clip_#", "clip-vit-b-32:image_size={}"},
      {"vit_base_patch16_clip_224", "clip-vit-b-16"},
      {"vit_base_patch16_clip_#", "clip-vit-b-16:image_size={}"},
      {"vit_large_patch14_clip_224", "clip-vit-l-14"},
      {"vit_large_patch14_clip_336", "clip-vit-l-14-336"},
      {"vit_large_patch14_clip_#", "clip-vit-l-14:image_size={}"},
      {"vit-b-32", "clip-vit-b-32"},  // open_clip's names; timm's have underscores
      {"vit-b-16", "clip-vit-b-16"},
      {"vit-l-14", "clip-vit-l-14"},
      {"vit-l-14-336", "clip-vit-l-14-336"},
      {"rn50x4", "clip-resnet:image_size=288,layers=4-6-10-6,width=80,embedding=640,text_width=640"},
      {"rn50x16", "clip-resnet:image_size=384,layers=6-8-18-8,width=96,embedding=768,text_width=768"},
      {"rn50x64", "clip-resnet:image_size=448,layers=3-15-36-10,width=128,embedding=1024,text_width=1024"},
      {"resnet50_clip", "clip-rn50"},
      {"resnet101_clip", "clip-rn101"},
      {"resnet152", "resnet:layers=3-8-36-3,block=bottleneck"},
      {"vit_small_patch16_224", "vit-s-16"},
      {"vit_base_patch16_224", "vit-b-16"},
      {"vit_large_patch16_224", "vit-l-16"},
      {"vit_small_patch16_#", "vit-s-16:image_size={}"},
      {"vit_base_patch16_#", "vit-b-16:image_size={}"},
      {"vit_large_patch16_#", "vit-l-16:image_size={}"},
      {"vit_tiny_patch#_#", "vit:width=192,depth=12,heads=3,patch={},image_size={}"},
      {"vit_small_patch#_#", "vit-s-16:patch={},image_size={}"},
      {"vit_base_patch#_#", "vit-b-16:patch={},image_size={}"},
      {"vit_large_patch#_#", "vit-l-16:patch={},image_size={}"},
      {"vit_huge_patch#_#", "vit:width=1280,depth=32,heads=16,patch={},image_size={}"},
      {"vit_b_32", "vit-b-16:patch=32"},  // torchvision's
      {"vit_l_32", "vit-l-16:patch=32"},
      {"vit_h_14", "vit:width=1280,depth=32,heads=16,patch=14"},
      // Words that occur in names of one architecture.
      {"*alexnet*", kNotHere},
      {"*beit*", kNotHere},
      {"*cait*", kNotHere},
      {"*coat*", kNotHere},
      {"*coca*", kNotHere},
      {"*convit*", kNotHere},
      {"*convnext*", kNotHere},
      {"*crossvit*", kNotHere},
      {"*darknet*", kNotHere},
      {"*davit*", kNotHere},
      {"*deit3*", kNotHere},
      {"*densenet*", kNotHere},
      {"*dinov2*", kNotHere},
      {"*dinov3*", kNotHere},
      {"*distilled*", kNotHere},
      {"*efficient*", kNotHere},
      {"*eva0*", kNotHere},
      {"*fastvit*", kNotHere},
      {"*flexivit*", kNotHere},
      {"*ghostnet*", kNotHere},
      {"*googlenet*", kNotHere},
      {"*hiera*", kNotHere},
      {"*hrnet*", kNotHere},
      {"*inception*", kNotHere},
      {"*levit*", kNotHere},
      {"*maxvit*", kNotHere},
      {"*mixer*", kNotHere},
      {"*mnasnet*", kNotHere},
      {"*mobilenet*", kNotHere},
      {"*mobilevit*", kNotHere},
      {"*mvit*", kNotHere},
      {"*nfnet*", kNotHere},
      {"*poolformer*", kNotHere},
      {"*pvt*", kNotHere},
      {"*regnet*", kNotHere},
      {"*repvgg*", kNotHere},
      {"*res2net*", kNotHere},
      {"*resmlp*", kNotHere},
      {"*resnest*", kNotHere},
      {"*resnext*", kNotHere},
      {"*rexnet*", kNotHere},
      {"*samvit*", kNotHere},
      {"*senet*", kNotHere},
      {"*shufflenet*", kNotHere},
      {"*siglip*", kNotHere},
      {"*squeezenet*", kNotHere},
      {"*swin*", kNotHere},
      {"*tinyvit*", kNotHere},
      {"*tiny_vit*", kNotHere},
      {"*vgg*", kNotHere},
      {"*vitamin*", kNotHere},
      {"*wide_resnet*", kNotHere},
      {"*xception*", kNotHere},
      {"*xcit*", kNotHere},
      // Variants of ResNets and ViTs, whose names differ in a few letters from those of other models.
      {"cspresnet*", kNotHere},
      {"ecaresnet*", kNotHere},
      {"gcresnet*", kNotHere},
      {"seresnet*", kNotHere},
      {"skresnet*", kNotHere},
      {"tresnet*", kNotHere},
      {"resnetaa*", kNotHere},
      {"resnetblur*", kNotHere},
      {"resnetrs*", kNotHere},
      {"resnetv2*", kNotHere},
      {"resnet#c", kNotHere},
      {"resnet#d", kNotHere},
      {"resnet#s", kNotHere},
      {"resnet#t", kNotHere},
      {"resnet#_*", kNotHere},
      {"resnet10", kNothing},
      {"resnet14", kNothing},
      {"resnet26", kNothing},
      {"resnet200", kNothing},
      {"resnet270", kNothing},
      {"vit_*patch#_*_*", kNothing},
      {"vit_giant*", kNothing},
      {"vit_gigantic*", kNothing},
      {"vit_*relpos*", kNothing},
      {"vit-h-*", kNothing},
      {"vit-g-*", kNothing},
      {"vit-bigg-*", kNothing},
      {"vit-s-32*", kNothing},
      {"vit-b-*-plus*", kNothing},
  };
  return kNames;
}

std::string model_hint(const std::string& name, const std::vector<std::string>& known) {
  if (name.size() > kLongestName) return "";
  bool is_other = false;
  const auto found = find_name(plain(name), is_other);
  if (is_other)
    return ": its architecture is not one of those here, but script:FILE takes any TorchScript module "
           "(docs/models.md)";
  if (!found) return did_you_mean(plain(name), known);
  return found->empty() ? "" : "; did you mean '" + *found + "'?";
}

}  // namespace tpgm

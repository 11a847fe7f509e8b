// Our models against the Python libraries', on their checkpoints:
// tests/weights/goldens/make_model_goldens.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/weights/goldens.h"
#include "tests/weights/parity.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/families.h"
#include "tpgm/weights/layouts.h"
#include "tpgm/weights/signatures.h"

namespace tpgm::testing {
namespace {

class Golden : public ::testing::TestWithParam<GoldenCase> {
 protected:
  NamedTensors expected_ = SafetensorsFile(GetParam().expected).tensors();
  Parity parity() const { return Parity(GetParam().checkpoint, GetParam().model); }
};

TEST_P(Golden, EveryNumberIsTheLibrarys) {
  Parity ours = parity();
  bool steps = false;
  for (const auto& item : expected_) steps |= item.key().starts_with("after/");
  const NamedTensors results = ours.run(expected_, steps ? 3 : 0);
  size_t compared = 0;
  for (const auto& item : expected_) {
    const std::string& name = item.key();
    if (name == "images" || name == "tokens" || name.starts_with("upstream") || name.starts_with("resized"))
      continue;
    const at::Tensor* mine = results.find(name);
    ASSERT_NE(mine, nullptr) << name;
    ++compared;
    if (const size_t key = name.find("k_proj.bias"); key != std::string::npos) {
      // A bias of all keys alike changes no attention: its gradient is 0, and what is left of it is rounding.
      const at::Tensor values = expected_[std::string(name).replace(key, 1, "v")];
      EXPECT_LT(mine->abs().max().item<float>(), 1e-3 * values.abs().max().item<float>()) << name;
      continue;
    }
    const double limit = name.find('/') == std::string::npos ? 1e-4 : 1e-3;
    EXPECT_LT(difference(*mine, item.value()), limit) << name;
  }
  EXPECT_GT(compared, 10U);
  // And nothing of the image tower is left out: it has a gradient for each of its parameters.
  size_t gradients = 0;
  for (const auto& item : results) gradients += item.key().starts_with("grad/") ? 1 : 0;
  EXPECT_GE(gradients, ours.backbone().parameters().size());
}

// What programs without LibTorch know of a model.
TEST_P(Golden, IsKnownByItsSignature) {
  const auto names = Checkpoint(GetParam().checkpoint).names();
  const auto recognised = recognise(names);
  const auto signature = find_signature(names);
  ASSERT_TRUE(recognised && signature);
  EXPECT_EQ(signature->family, recognised->family->name);
  EXPECT_EQ(signature->layout, to_text(recognised->layout));
}

TEST(Signatures, AreThoseOfTheTables) {
  std::vector<std::string> ours, theirs;
  for (const auto& each : kSignatures)
    ours.push_back(fmt::format("{} {} {}", each.family, each.layout, each.name));
  for (const Family& family : families()) {
    if (const auto& recognition = *family.recognition)
      theirs.push_back(
          fmt::format("{} tpgm {}", family.name, family.image_prefix() + recognition->signature));
  }
  std::string earlier;
  for (const auto& table : layout_tables()) {
    // timm's ResNets have torchvision's names.
    if (table.layout == Layout::kTimm && earlier.find(table.signature) != std::string::npos) continue;
    earlier += std::string(table.signature) + "\n";
    theirs.push_back(fmt::format("{} {} {}", table.family->name, to_text(table.layout), table.signature));
  }
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  EXPECT_EQ(ours, theirs);
}

class ResizedGolden : public Golden {};

TEST_P(ResizedGolden, PositionsAreResizedAsTheLibraryDoes) {
  const at::Tensor images = expected_["resized_images"];
  Parity ours(GetParam().checkpoint, GetParam().model_with("image_size=" + std::to_string(images.size(2))));
  EXPECT_LT(difference(ours.features(images), expected_["resized_features"]), 1e-4);
}

TEST_P(Golden, GoesBackToTheLayoutItCameIn) {
  const Checkpoint checkpoint(GetParam().checkpoint);
  const Recognised recognised = *recognise(checkpoint.names());
  const NamedTensors tensors = checkpoint.tensors();
  const Renamed ours = to_ours(tensors, recognised);
  const Renamed back = from_ours(ours.tensors, read_weights(checkpoint, parse_model(GetParam().model)).config,
                                 recognised.layout);
  EXPECT_TRUE(ours.unknown.empty() && back.unknown.empty());
  ASSERT_GT(back.tensors.size(), 10U);
  for (const auto& item : back.tensors) {
    std::string name = item.key();
    if (!tensors.contains(recognised.prefix + name) && name.starts_with("fc_norm."))
      name.erase(0, 3);  // MAE's
    if (name.starts_with(recognised.missing)) name.erase(0, recognised.missing.size());
    const at::Tensor* original = tensors.find(recognised.prefix + name);
    if (original == nullptr) original = tensors.find(recognised.prefix + "text." + name);
    ASSERT_NE(original, nullptr) << name;
    EXPECT_TRUE(item.value().equal(*original)) << name;
  }
}

std::vector<GoldenCase> resized_cases() {
  std::vector<GoldenCase> cases = golden_cases();
  std::erase_if(cases, [](const GoldenCase& each) {
    return !SafetensorsFile(each.expected).entries().contains("resized_images");
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Each, ResizedGolden, ::testing::ValuesIn(resized_cases()),
                         [](const auto& info) { return info.param.test_name(); });
INSTANTIATE_TEST_SUITE_P(Each, Golden, ::testing::ValuesIn(golden_cases()),
                         [](const auto& info) { return info.param.test_name(); });

}  // namespace
}  // namespace tpgm::testing

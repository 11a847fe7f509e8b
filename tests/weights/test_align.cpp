// Checkpoints of one model under the names of different libraries: what compare and merge see of them.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/model_files.h"
#include "tests/torch_nn.h"
#include "tpgm/checkpoints/compare.h"
#include "tpgm/checkpoints/merge.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/weights/align.h"
#include "tpgm/weights/read.h"

namespace tpgm::testing {
namespace {

class Align : public ModelFiles {
 protected:
  // A run that began from the golden: every float of the backbone is larger by `delta`; with a head.
  std::filesystem::path run_of(const std::filesystem::path& golden, const std::string& model,
                               double delta) const {
    const auto weights = read_weights(Checkpoint(golden), parse_model(model));
    NamedTensors run("Tensor");
    for (const auto& item : weights.backbone()) {
      const auto& value = item.value();
      run.insert("backbone." + item.key(), value.is_floating_point() ? value + delta : value);
    }
    run.insert("head.weight", at::ones({3, 4}));
    save_safetensors(run, file("run.safetensors"));
    return file("run.safetensors");
  }
};

TEST_F(Align, AnyLayoutWithARunOfIt) {
  for (const auto& golden : golden_cases()) {
    SCOPED_TRACE(golden.test_name());
    constexpr double kDelta = 0.5;
    Checkpoint a(golden.checkpoint), b(run_of(golden.checkpoint, golden.model, kDelta));
    const auto alignment = align_layouts(a, b);
    ASSERT_FALSE(alignment.notes.empty());
    const auto comparison = compare_checkpoints(a, b);
    for (const auto& tensor : comparison.reshaped)
      EXPECT_TRUE(tensor.name.starts_with("head.")) << tensor.name;
    size_t floats = 0;
    for (const auto& tensor : comparison.tensors) {
      if (!at::isFloatingType(b.entry(tensor.name).dtype)) continue;
      ++floats;
      EXPECT_NEAR(tensor.l2, kDelta * std::sqrt(static_cast<double>(tensor.numel)), 1e-3 * tensor.l2)
          << tensor.name;
    }
    EXPECT_GT(floats, 10U);
    EXPECT_EQ(alignment.own_parts.front(), "head.*");
    for (const auto& name : comparison.only_b) EXPECT_EQ(name, "head.weight");
    for (const auto& name : comparison.only_a)
      EXPECT_TRUE(name.starts_with("text.") || name.starts_with("head.") || name == "logit_scale") << name;
  }
}

TEST_F(Align, MergedWithARunOfItItIsARun) {
  Checkpoint a(golden_folder() / "openai-clip-vit/model.pt"), b(run_of(a.path(), "clip-vit", 1));
  const auto theirs = read_weights(a).backbone();
  MergeOptions options;
  options.ratios({0.25}).exclude(align_layouts(a, b).own_parts);
  merge_checkpoints(a, b, {file("merged.safetensors")}, options);
  // The wrapper's prefix is shared by all names but the head's, and so stays.
  const Checkpoint merged(file("merged.safetensors"));
  EXPECT_EQ(merged.names().size(), b.names().size());
  EXPECT_TRUE(at::equal(merged.tensor("head.weight"), at::ones({3, 4})));
  for (const auto& item : theirs) {
    EXPECT_TRUE(at::allclose(merged.tensor("backbone." + item.key()).to(at::kFloat),
                             item.value().to(at::kFloat) + 0.25, 1e-2, 1e-2))
        << item.key();
  }
}

TEST_F(Align, TwoLibrariesGetTheNamesOfTheModel) {
  const Checkpoint original(golden_folder() / "openai-clip-vit/model.pt");
  save_safetensors(read_weights(original).tensors, file("ours.safetensors"));
  Checkpoint a = original, b(file("ours.safetensors"));
  EXPECT_TRUE(align_layouts(a, b).own_parts.empty());
  const auto comparison = compare_checkpoints(a, b);
  EXPECT_TRUE(comparison.only_a.empty() && comparison.only_b.empty());
  EXPECT_EQ(comparison.all.l2, 0);
  EXPECT_TRUE(b.contains("visual.norm.weight"));
}

TEST_F(Align, AModelWithNamesOfItsOwnIsTheBackboneOfItsRun) {
  NamedTensors own("Tensor"), run("Tensor");
  for (const char* name : {"stage.0.kernel", "stage.1.kernel", "last.kernel"}) {
    own.insert(name, at::zeros({2, 3}));
    run.insert(std::string("backbone.") + name, at::ones({2, 3}));
  }
  run.insert("head.weight", at::ones({2, 2}));
  save_safetensors(own, file("own.safetensors"));
  save_safetensors(run, file("run.safetensors"));
  Checkpoint a(file("own.safetensors")), b(file("run.safetensors"));
  EXPECT_EQ(align_layouts(a, b).own_parts, std::vector<std::string>{"head.*"});
  EXPECT_EQ(compare_checkpoints(a, b).tensors.size(), 3U);
  Checkpoint c(file("run.safetensors")), d(file("own.safetensors"));  // in the other order
  align_layouts(c, d);
  EXPECT_EQ(compare_checkpoints(c, d).tensors.size(), 3U);
}

TEST_F(Align, WhatCannotBeAlignedIsLeftOrRefused) {
  Checkpoint resnet(golden_folder() / "torchvision-resnet-basic/model.pth"),
      vit(golden_folder() / "timm-vit/model.pth");
  const auto error = error_of([&] { align_layouts(resnet, vit); });
  EXPECT_TRUE(has(error, "is a resnet, and") && has(error, "a vit: they must be of one architecture"))
      << error;
  NamedTensors strange("Tensor");
  strange.insert("encoder.weight", at::ones({3}));
  save_safetensors(strange, file("strange.safetensors"));
  Checkpoint other(file("strange.safetensors"));
  EXPECT_TRUE(align_layouts(vit, other).notes.empty());
  Checkpoint same = vit;
  EXPECT_TRUE(align_layouts(vit, same).notes.empty());
  EXPECT_TRUE(vit.contains("blocks.0.attn.qkv.weight"));  // timm's own
}

}  // namespace
}  // namespace tpgm::testing

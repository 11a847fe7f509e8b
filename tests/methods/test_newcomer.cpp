// The loop of the README, as it stands there: it has to compile with any module, and to do what it says.
#include <filesystem>

#include "tests/net.h"
#include "tpgm/tpgm.h"

namespace tpgm::testing {
namespace {

using MyNet = Net;

struct HeldOut {
  int64_t count = 0;
  Batch next() { return batch(100 + count++, torch::kCPU); }
};

TEST(Newcomer, TheLoopOfTheReadme) {
  const auto folder = std::filesystem::path(::testing::TempDir());
  const auto before = (folder / "pretrained.safetensors").string(),
             after = (folder / "robust.safetensors").string();
  torch::manual_seed(0);
  save_weights(*MyNet(), before);
  const auto train_loader = std::make_unique<std::vector<Batch>>();
  for (int64_t i = 0; i < 5; ++i) train_loader->push_back(batch(i, torch::kCPU));
  HeldOut held_out;

  MyNet model;
  tpgm::load_weights(*model, before);
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  tpgm::Tpgm tpgm(*model, tpgm::TpgmOptions().norm(tpgm::Norm::kL2).radius_lr(1e-2).exclude({"head.*"}));
  for (auto& batch : *train_loader) {
    optimizer.zero_grad();
    loss(model, batch).backward();
    optimizer.step();
    tpgm.step([&] { return loss(model, held_out.next()); });
  }
  tpgm::save_weights(*model, after);

  EXPECT_EQ(held_out.count, 5);  // one radius step per step, each on a fresh batch
  const auto pretrained = load_state_dict(before), robust = load_state_dict(after);
  for (const auto& radius : tpgm.radii()) {
    const auto distance = (robust[radius.key()] - pretrained[radius.key()]).norm().item<double>();
    EXPECT_LE(distance, radius.value() * 1.0001 + 1e-7) << radius.key();
  }
  EXPECT_FALSE(tpgm.radii().contains("head.weight"));
  EXPECT_FALSE(torch::equal(robust["head.weight"], pretrained["head.weight"]));
}

}  // namespace
}  // namespace tpgm::testing

// A project of its own on an installed tpgm: fine-tunes one layer and prints how much of each move was kept.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <tpgm/tpgm.h>

#include <iostream>

int main() {
  torch::manual_seed(0);
  torch::nn::Linear model(8, 2);
  const auto train = torch::randn({16, 8}), held_out = torch::randn({16, 8});
  const auto loss = [&](const torch::Tensor& x) { return torch::mse_loss(model(x), x.narrow(1, 0, 2)); };

  torch::optim::SGD optimizer(model->parameters(), 0.1);
  tpgm::Tpgm method(*model, tpgm::TpgmOptions().norm(tpgm::Norm::kL2));  // the anchor is taken here
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    loss(train).backward();
    optimizer.step();
    method.step([&] { return loss(held_out); });  // learn the radii, then project
  }
  for (const auto& item : method.ratios()) std::cout << item.key() << ' ' << item.value() << '\n';
}

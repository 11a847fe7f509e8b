// Two checkpoints after the fact: learn how far each tensor of a fine-tuned model may stay from its
// pre-trained one.
//
// The fine-tuning may come from any tool: all that is needed are both checkpoints and some held-out data.
// Here both are made first, and the fine-tuned one has a new head.
#include <torch/torch.h>
#include <tpgm/tpgm.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int classes) {
    body = register_module("body", torch::nn::Linear(16, 64));
    head = register_module("head", torch::nn::Linear(64, classes));
  }
  torch::Tensor forward(torch::Tensor x) { return head->forward(torch::relu(body->forward(x))); }
  torch::nn::Linear body{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(0);
  const auto truth = torch::randn({16, 4});
  const auto draw = [&](int count, double label_noise) {
    const auto x = torch::randn({count, 16});
    auto y = torch::matmul(x, truth).argmax(1);
    const auto wrong = torch::rand({count}) < label_noise;
    return std::pair(x, torch::where(wrong, torch::randint(4, {count}), y));
  };
  const auto fit = [](Net& net, const torch::Tensor& x, const torch::Tensor& y, int steps) {
    torch::optim::Adam optimizer(net->parameters(), 3e-3);
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(net->forward(x), y).backward();
      optimizer.step();
    }
  };
  const auto accuracy = [&](Net& net) {
    torch::NoGradGuard no_grad;
    torch::manual_seed(1);
    const auto [x, y] = draw(5000, 0);
    return 100 * (net->forward(x).argmax(1) == y).to(torch::kFloat).mean().item<double>();
  };

  // A good pre-trained model (of eight classes), and a fine-tuned one that has memorized a few noisy labels.
  Net pretrained(8);
  const auto [many_x, many_y] = draw(4000, 0);
  fit(pretrained, many_x, many_y, 300);
  tpgm::save_weights(*pretrained, "pretrained.safetensors");
  Net model(4);
  tpgm::load_weights(*model, "pretrained.safetensors", /*exclude=*/{"head.*"});
  const auto [few_x, few_y] = draw(150, 0.3);
  fit(model, few_x, few_y, 400);
  const auto before = accuracy(model);

  // What an application does: one step between the two. The new head has no anchor, so it is excluded by
  // name.
  const auto [held_x, held_y] = draw(300, 0.3);
  tpgm::Tpgm tpgm(*model, tpgm::load_state_dict("pretrained.safetensors"),
                  tpgm::TpgmOptions().norm(tpgm::Norm::kL2).radius_steps(200).exclude({"head.*"}));
  tpgm.step([&] { return torch::cross_entropy_loss(model->forward(held_x), held_y); });
  tpgm::save_weights(*model, "robust.safetensors", {{"method", "tpgm"}});

  std::printf("fine-tuned %.1f %%, projected %.1f %% on clean labels\n", before, accuracy(model));
  for (const auto& ratio : tpgm.ratios()) {
    std::printf("  %-12s radius %.3f, ratio %.2f\n", ratio.key().c_str(), tpgm.radii()[ratio.key()],
                ratio.value());
  }
}

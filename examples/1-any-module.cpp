// Fine-tune a module of your own and keep what it knew: TPGM in a plain LibTorch training loop.
//
// The data: ten classes of points in many "domains", each seen through a slightly different rotation. A small
// network is pre-trained on all of them, then fine-tuned on a few points of one domain, and tested on that
// domain (ID) and on the others (OOD).
#include <torch/torch.h>
#include <tpgm/tpgm.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    body = register_module("body", torch::nn::Sequential(torch::nn::Linear(kDims, 128), torch::nn::ReLU(),
                                                         torch::nn::Linear(128, 128), torch::nn::ReLU()));
    head = register_module("head", torch::nn::Linear(128, kClasses));
  }
  torch::Tensor forward(torch::Tensor x) { return head->forward(body->forward(x)); }

  static constexpr int kDims = 32, kClasses = 10;
  torch::nn::Sequential body{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

struct Data {
  torch::Tensor x, y;
};

// `count` points of one domain: noisy class centers, rotated as the domain rotates them.
Data draw(int domain, int count) {
  static const auto centers = torch::randn({NetImpl::kClasses, NetImpl::kDims});
  static const auto turns = torch::randn({64, NetImpl::kDims, NetImpl::kDims}) * 0.07;
  const auto y = torch::randint(NetImpl::kClasses, {count});
  const auto skew = turns[domain] - turns[domain].t();  // its exponential is a rotation
  return {torch::matmul(centers.index({y}) + 1.6 * torch::randn({count, NetImpl::kDims}), skew.matrix_exp()),
          y};
}

torch::Tensor loss(Net& net, const Data& data) {
  return torch::cross_entropy_loss(net->forward(data.x), data.y);
}

double accuracy(Net& net, const Data& data) {
  torch::NoGradGuard no_grad;
  return 100 * (net->forward(data.x).argmax(1) == data.y).to(torch::kFloat).mean().item<double>();
}

int main() {
  torch::manual_seed(0);
  Net pretrained;
  torch::optim::Adam pretraining(pretrained->parameters(), 1e-3);
  for (int step = 0; step < 1500; ++step) {
    pretraining.zero_grad();
    loss(pretrained, draw(1 + step % 63, 128)).backward();
    pretraining.step();
  }
  tpgm::save_weights(*pretrained, "pretrained.safetensors");

  const auto train = draw(0, 400), held_out = draw(0, 200), id_test = draw(0, 4000);
  const auto report = [&](const char* name, Net& net) {
    double ood = 0;
    for (int domain = 1; domain <= 8; ++domain) ood += accuracy(net, draw(domain, 2000)) / 8;
    std::printf("%-22s ID %5.1f   OOD %5.1f\n", name, accuracy(net, id_test), ood);
  };
  report("pre-trained", pretrained);

  for (const bool constrained : {false, true}) {
    Net model;
    tpgm::load_weights(*model, "pretrained.safetensors");
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
    tpgm::Tpgm tpgm(*model, tpgm::TpgmOptions().every(tpgm::kEnd));  // the anchor is taken here
    for (int step = 0; step < 300; ++step) {
      const auto picked = torch::randint(train.y.size(0), {64});
      optimizer.zero_grad();
      loss(model, {train.x.index({picked}), train.y.index({picked})}).backward();
      optimizer.step();
    }
    if (constrained)
      tpgm.finish([&] { return loss(model, held_out); });  // learn the radii once, then project
    report(constrained ? "fine-tuned with TPGM" : "fine-tuned", model);
    if (constrained) {
      std::printf("\nhow much of its way each tensor may keep:\n");
      for (const auto& ratio : tpgm.ratios())
        std::printf("  %-16s %.2f\n", ratio.key().c_str(), ratio.value());
    }
  }
}

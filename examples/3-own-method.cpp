// A method of your own in forty lines: derive from AnchoredMethod, and use the batch of constrained tensors.
//
// The method: an elastic band. Up to `slack` away from its anchor a tensor moves freely; beyond that only a
// share `give` of each further step remains.
#include <torch/torch.h>
#include <tpgm/tpgm.h>

#include <cstdio>

struct ElasticOptions : tpgm::AnchoredOptions<ElasticOptions> {  // with exclude() and anchor_storage()
  TORCH_ARG(double, slack) = 0.5;
  TORCH_ARG(double, give) = 0.1;
};

class Elastic final : public tpgm::AnchoredMethod {
 public:
  explicit Elastic(const tpgm::ModuleView& model, const ElasticOptions& options = {})
      : AnchoredMethod("Elastic", model, options, tpgm::Norm::kL2), options_(options) {}

  void after_step(const tpgm::Closure&) override {
    poll();                                           // errors of the last step, if any
    displacements_.measure();                         // all distances from the anchor
    const auto& distance = displacements_.largest();  // one number per tensor, on the tensors' device
    const auto beyond = torch::relu(distance - options_.slack());
    displacements_.project(distance - (1 - options_.give()) * beyond);  // into these radii
    post();
  }

 private:
  ElasticOptions options_;
};

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  const auto x = torch::randn({256, 8}), y = x.sum(1, /*keepdim=*/true).sin();
  for (const double give : {1.0, 0.1}) {
    auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
    torch::optim::AdamW optimizer(copy->parameters(), 1e-2);
    Elastic elastic(*copy, ElasticOptions().give(give));
    for (int step = 0; step < 200; ++step) {
      optimizer.zero_grad();
      torch::mse_loss(copy->forward(x), y).backward();
      elastic.before_step();
      optimizer.step();
      elastic.after_step({});
    }
    elastic.finish({});
    std::printf("give %.1f: loss %.3f, distances", give, torch::mse_loss(copy->forward(x), y).item<double>());
    for (const auto& distance : elastic.displacements().by_name(elastic.displacements().largest()))
      std::printf("  %s %.2f", distance.key().c_str(), distance.value());
    std::printf("\n");
  }
}

// The C++ blocks of the pages, compiled as they stand and never run: check_docs.py finds each of them here,
// or in an example, between a line `// block` and a line `// end`. What a page takes as given is declared
// above its block.
#include <torch/torch.h>
#include <tpgm/tpgm.h>
#include <tpgm/train/image_setup.h>

#include <iostream>

// clang-format off
namespace {

struct MyNetImpl : torch::nn::Module {};
TORCH_MODULE(MyNet);
struct Batch {};
struct Batches {
  Batch next() { return {}; }
} held_out;
std::vector<Batch> batches, *train_loader = &batches;
torch::Tensor loss(MyNet&, const Batch&) { return {}; }
const torch::Device device = torch::kCPU;

[[maybe_unused]] void loop() {
  // block
  #include <tpgm/tpgm.h>

  MyNet model;                                                // any torch::nn::Module
  tpgm::load_weights(*model, "pretrained.safetensors");
  torch::optim::AdamW optimizer(model->parameters(), 1e-5);   // any torch optimizer
  tpgm::Tpgm tpgm(*model, tpgm::TpgmOptions()                 // the anchor is taken here
                              .norm(tpgm::Norm::kL2).radius_lr(1e-2).exclude({"head.*"}));
  for (auto& batch : *train_loader) {
    optimizer.zero_grad();
    loss(model, batch).backward();
    optimizer.step();                                         // unconstrained
    tpgm.step([&] { return loss(model, held_out.next()); });  // learn radii, then project
  }
  tpgm::save_weights(*model, "robust.safetensors");
  // end
}

[[maybe_unused]] void at_the_end(MyNet& model, torch::optim::AdamW& optimizer) {
  // block
  tpgm::Tpgm tpgm(*model, tpgm::TpgmOptions().every(tpgm::kEnd).exclude({"head.*"}));
  for (auto& batch : *train_loader) {
    optimizer.zero_grad();
    loss(model, batch).backward();
    optimizer.step();
  }
  tpgm.finish([&] { return loss(model, held_out.next()); });  // 200 radius steps, then one projection
  for (const auto& ratio : tpgm.ratios()) std::cout << ratio.key() << " " << ratio.value() << "\n";
  // end
}

[[maybe_unused]] void any_method(MyNet& model, torch::optim::AdamW& optimizer) {
  const tpgm::Closure radius_loss = [&] { return loss(model, held_out.next()); };
  // block
  auto method = tpgm::make_method("ftp", *model, tpgm::load_state_dict("pretrained.safetensors"), {{"k", "0.5"}});
  for (auto& batch : *train_loader) {
    optimizer.zero_grad();
    loss(model, batch).backward();
    method->before_step();                // may read or change the gradients
    optimizer.step();
    method->after_step(radius_loss);      // may change the weights
  }
  method->finish(radius_loss);            // wise, and tpgm with every = end, do their work here

  tpgm::save_safetensors(method->state_dict(), "method.safetensors");      // beside your weights and optimizer
  method->load_state_dict(tpgm::load_state_dict("method.safetensors"));    // resumes bit-exactly
  // end
}

[[maybe_unused]] void models() {
  // block
  #include <tpgm/tpgm.h>

  auto loaded = tpgm::load_classifier("", "moco-v3.pth.tar",                 // "" : whatever it is
                                      tpgm::LoadOptions().head(tpgm::Head::kFresh)
                                          .classifier(tpgm::ClassifierOptions().num_classes(345)));
  for (const auto& note : loaded.notes) std::cerr << note << "\n";
  tpgm::Tpgm tpgm(*loaded.model, tpgm::TpgmOptions().exclude(loaded.model->unanchored()));
  // ... the loop of the README ...
  tpgm::save_weights(*loaded.model, "tuned.safetensors", loaded.metadata);   // known again by every command
  // end
}

[[maybe_unused]] void data(const tpgm::LoadedClassifier& loaded) {
  // block
  #include <tpgm/tpgm.h>
  #include <tpgm/train/image_setup.h>

  tpgm::Dataset data("domainnet");
  auto task = tpgm::make_task(data, {"real"}, {"real", "sketch"}, tpgm::SplitOptions());
  auto transforms = tpgm::image_transforms(loaded);   // of load_classifier(): the model's preprocessing
  tpgm::Loader loader(task.train, transforms.train,
                      transforms.loader.batch_size(256).workers(8).shuffle(true).device(device));
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    loader.start(epoch);                       // or start(epoch, batch): in the middle
    while (auto batch = loader.next()) {
      // batch->images, batch->labels, batch->indices
    }
  }
  // end
}

}  // namespace

int main() {}

// A checkpoint of any library as a classifier, fine-tuned under TPGM, saved, and written back for that
// library:
//   example-4-pretrained-model [CHECKPOINT]
// Without a checkpoint it makes a small one, as timm would save it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>
#include <tpgm/tpgm.h>
#include <tpgm/train/image_setup.h>

#include <string>

namespace {

std::string make_checkpoint() {
  const auto config = tpgm::parse_model("vit:width=64,depth=3,heads=2,patch=8,image_size=32");
  const auto backbone = tpgm::make_backbone(config);
  backbone->reset_parameters();
  const auto timms = tpgm::from_ours(tpgm::state_dict(*backbone), config, tpgm::Layout::kTimm);
  tpgm::save_safetensors(timms.tensors, "timm-vit.safetensors");
  return "timm-vit.safetensors";
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(0);
  try {
    const bool own = argc < 2;
    const std::string checkpoint = own ? make_checkpoint() : argv[1];

    // The model is recognized from the checkpoint, except for what shapes do not show: here, the heads.
    const auto loaded = tpgm::load_classifier(
        own ? "vit:heads=2" : "", checkpoint,
        tpgm::LoadOptions().head(tpgm::Head::kFresh).classifier(tpgm::ClassifierOptions().num_classes(4)));
    for (const auto& note : loaded.notes) fmt::print("note: {}\n", note);
    auto& model = *loaded.model;
    fmt::print("{}\n", tpgm::keys::kModel.at(loaded.metadata));

    // The model's preprocessing, as a tpgm::Loader takes it (example 5): the checkpoint's, or that of a config
    // file beside it.
    const auto transforms = tpgm::image_transforms(loaded);
    const auto size = transforms.eval.image_size();
    fmt::print("images of {} pixels, crop_pct {}, mean {}, std {}\n", size, transforms.eval.crop_pct(),
               fmt::join(transforms.loader.mean(), " "), fmt::join(transforms.loader.std(), " "));

    // Here images are drawn: four classes that differ in brightness.
    const auto draw = [&](int64_t count) {
      const auto labels = torch::randint(4, {count});
      const auto images =
          torch::randn({count, transforms.loader.channels(), size, size}) + labels.view({-1, 1, 1, 1});
      return std::pair(images, labels);
    };
    const auto loss = [&](const auto& batch) {
      return torch::nn::functional::cross_entropy(model.forward(batch.first), batch.second);
    };

    // A fresh head has no pre-trained values: unanchored() names it. block_globs() names the blocks.
    tpgm::Tpgm tpgm(
        model,
        tpgm::TpgmOptions().radius_lr(1e-2).tv(1e-3).groups(model.block_globs()).exclude(model.unanchored()));
    torch::optim::AdamW optimizer(model.parameters(), 1e-3);
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const auto value = loss(draw(16));
      value.backward();
      optimizer.step();
      tpgm.step([&] { return loss(draw(16)); });
      if (step % 5 == 4) fmt::print("step {:>2}  loss {:.3f}\n", step + 1, value.template item<float>());
    }

    tpgm::save_weights(model, "tuned.safetensors", loaded.metadata);
    const auto tuned = tpgm::read_weights(tpgm::Checkpoint("tuned.safetensors"));
    const auto layout = tpgm::parse_layout(tpgm::keys::kLayout.at(loaded.metadata));
    const auto saved =
        tpgm::save_as(tuned, "tuned-for-python.safetensors", tpgm::SaveOptions().layout(layout));
    fmt::print("tuned.safetensors, and for Python, named as {} names them, {}\n", tpgm::to_text(layout),
               saved.files.front().string());
  } catch (const c10::Error& error) {
    fmt::print(stderr, "{}\n", error.what_without_backtrace());
    return 1;
  }
}

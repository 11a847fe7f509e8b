// What the tests of commands that run a classifier share: images of three classes, and a ViT of 8 × 8 pixels.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/data/data_files.h"
#include "tpgm/io/metadata.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/models/classifier.h"
#include "tpgm/models/named_models.h"

namespace tpgm::test {

inline constexpr const char* kTinyVit = "vit:image_size=8,patch=4,width=8,depth=1,heads=1,mlp=8";

/// Domains home (3 images of class a, 2 of b, 1 of c) and away (1 of a, 1 of b, 2 of c).
inline void write_two_domains(const std::filesystem::path& folder) {
  const auto write = [&](const char* domain, const std::vector<int>& counts) {
    uint64_t seed = 0;
    for (size_t k = 0; k < counts.size(); ++k) {
      for (int i = 0; i < counts[k]; ++i)
        write_image(folder / domain / std::string(1, static_cast<char>('a' + k)) / fmt::format("{}.png", i),
                    seed++, 8, 8);
    }
  };
  write("home", {3, 2, 1});
  write("away", {1, 1, 2});
}

inline std::shared_ptr<Classifier> tiny_classifier(int64_t classes) {
  auto config = parse_model(kTinyVit);
  set_defaults(config);
  auto backbone = make_backbone(config);
  backbone->reset_parameters();
  auto model = std::make_shared<Classifier>(backbone, ClassifierOptions().num_classes(classes));
  const at::NoGradGuard no_grad;
  model->head->weight.normal_();  // a fresh head gives every image nearly the same logits
  return model;
}

/// The logits of every image are `logits`.
inline std::shared_ptr<Classifier> constant_classifier(const std::vector<float>& logits) {
  auto model = tiny_classifier(static_cast<int64_t>(logits.size()));
  const at::NoGradGuard no_grad;
  model->head->weight.zero_();
  model->head->bias.copy_(at::tensor(logits));
  return model;
}

/// `classes` go into the metadata, unless there are none.
inline void save_classifier(const Classifier& model, const std::filesystem::path& path,
                            const std::vector<std::string>& classes) {
  auto config = parse_model(kTinyVit);
  set_defaults(config);
  Metadata metadata;
  keys::kModel.set(metadata, to_text(config));
  if (!classes.empty()) keys::kClasses.set(metadata, classes);
  save_weights(model, path, metadata);
}

}  // namespace tpgm::test

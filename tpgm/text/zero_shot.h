// Zero-shot heads: classifiers that CLIP's text tower makes from class names in sentences.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tpgm/io/metadata.h"
#include "tpgm/models/clip.h"
#include "tpgm/text/class_names.h"
#include "tpgm/text/tokenizer.h"

namespace tpgm {

/// A file of templates, or one in place of a file. Empty: those that the checkpoint was trained with
/// (keys::kTemplates), or else "a photo of a {}.".
std::vector<std::string> find_templates(const std::string& text, const Metadata& metadata = {});

/// The vocabulary at `path`; or else the one beside the checkpoint; or else Tokenizer::bytes() for a model of
/// that many tokens. Throws if there is none.
Tokenizer find_tokenizer(const std::filesystem::path& path, const std::filesystem::path& checkpoint,
                         int64_t vocab);

/// [classes, templates, n], int64: each class name in each template, n as the longest needs it.
struct ClassTokens {
  at::Tensor tokens;
  int64_t truncated = 0;  ///< sentences that were longer than the context, and were cut
};
ClassTokens tokenize_classes(const ClipText& text, const Tokenizer& tokenizer,
                             const std::vector<std::string>& class_names,
                             const std::vector<std::string>& templates);

struct ZeroShotOptions {
  /// Sentences at a time.
  TORCH_ARG(int64_t, batch_size) = 256;
};

struct ZeroShotHead {
  /// [classes, embedding]: for each class the mean over templates of normalized embeddings, normalized again,
  /// times exp(logit_scale). Logits are its product with normalized image features.
  at::Tensor weight;
  std::vector<std::string> class_names, templates;
  /// The CLIP it was made with, as parse_model reads it, where a file says so.
  std::string model;
  /// Sentences that were longer than the context, and were cut.
  int64_t truncated = 0;
};

/// `progress` is told the number of sentences after each batch. On the device of the text tower. Throws if
/// the tokenizer's vocabulary is another model's.
ZeroShotHead make_zero_shot(ClipText& text, const at::Tensor& logit_scale, const Tokenizer& tokenizer,
                            const std::vector<std::string>& class_names,
                            const std::vector<std::string>& templates, const ZeroShotOptions& options = {},
                            const std::function<void(size_t)>& progress = {});

/// A safetensors file with "head.weight", and the rest in its metadata.
void save_zero_shot(const ZeroShotHead& head, const std::filesystem::path& file);
ZeroShotHead load_zero_shot(const std::filesystem::path& file);

}  // namespace tpgm

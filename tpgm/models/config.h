// What a model is, in words: a family and its sizes, of which some may be unknown yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpgm {

struct Family;

/// The sizes of every family, by member; which of them a family has, and what they mean there, its row says
/// (families.h). What is not set is taken from elsewhere: a checkpoint's shapes, its config.json, the
/// family's defaults.
struct ModelConfig {
  const Family* family = nullptr;  // one of families(); parse_model() always sets it
  std::string file;                // of a family whose models are files: "script:FILE"
  std::optional<int64_t> image_size, channels;
  std::optional<std::string> layers, block, stem;
  std::optional<int64_t> width, depth, patch, mlp, heads;
  std::optional<std::string> activation, pool;
  std::optional<bool> pre_norm, patch_bias;
  std::optional<double> eps;
  std::optional<int64_t> embedding;
  std::optional<int64_t> text_width, text_depth, text_heads, text_mlp, vocab, context, end_of_text;
  std::optional<bool> recompute;
};

/// Sets a size by name, from text; throws for names that the family does not have, with the nearest, and for
/// wrong values.
void set_size(ModelConfig& config, const std::string& name, const std::string& value);

/// Takes from `other` the sizes that `config` does not say. The families must agree.
void fill(ModelConfig& config, const ModelConfig& other);

/// The sizes that both say, and differently: "depth is 12 in ..., 2 in ...".
struct Conflict {
  std::string size, ours, theirs;
};
std::vector<Conflict> conflicts(const ModelConfig& ours, const ModelConfig& theirs);

/// "clip-vit:image_size=32,patch=8", "script:model.pt:channels=1": what parse_model (registry.h) reads.
std::string to_text(const ModelConfig& config);

/// "3-4-6-3" → {3, 4, 6, 3}; throws for anything else, and for more stages than kMaxStages.
inline constexpr size_t kMaxStages = 16;
std::vector<int64_t> parse_layers(const std::string& text);

}  // namespace tpgm

// The metadata of checkpoints: text under keys, each with one type and one format.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// safetensors' `__metadata__`.
using Metadata = std::map<std::string, std::string>;

/// The preprocessing of images for a model. What a checkpoint does not specify is empty.
struct ImageView {
  std::vector<double> mean, std;  ///< per channel
  std::optional<double> crop_pct;
  std::optional<std::string> interpolation;  ///< "bicubic" or "bilinear"

  bool operator==(const ImageView&) const = default;
};

/// A key and the type of its value. T is std::string, bool, double, std::vector<std::string> or ImageView;
/// the last two are written as JSON.
template <typename T>
struct MetadataKey {
  std::string_view name;
  /// True if the key describes the tensors, not how the file was made: then it is passed on to files that are
  /// made from this one.
  bool inherited = false;

  /// The value; an empty one (false, 0) if there is no such key. Throws, naming the key, if the text is not
  /// of the type.
  T of(const Metadata& metadata) const;
  /// The same; throws if there is no such key.
  T at(const Metadata& metadata) const;
  /// Overwrites the value. `false` removes the key.
  void set(Metadata& metadata, const T& value) const;
  /// Copies the text unchanged, if there is any.
  void copy(const Metadata& from, Metadata& to) const;
  bool in(const Metadata& metadata) const { return metadata.contains(std::string(name)); }
};

extern template struct MetadataKey<std::string>;
extern template struct MetadataKey<bool>;
extern template struct MetadataKey<double>;
extern template struct MetadataKey<std::vector<std::string>>;
extern template struct MetadataKey<ImageView>;

/// All keys that this library writes. A new one must also go into kAll in metadata.cpp.
namespace keys {

/// "pt", without which Hugging Face's readers refuse a file.
inline constexpr MetadataKey<std::string> kFormat{"format", true};
/// The architecture with its sizes, as parse_model() reads it, or "script:FILE".
inline constexpr MetadataKey<std::string> kModel{"tpgm.model", true};
/// The layout of the original checkpoint, as parse_layout() reads it.
inline constexpr MetadataKey<std::string> kLayout{"tpgm.layout", true};
/// The layer whose features are the head's input, if it is not the last.
inline constexpr MetadataKey<std::string> kLayer{"tpgm.layer", true};
/// Features are normalized before the head.
inline constexpr MetadataKey<bool> kNormalize{"tpgm.normalize", true};
/// The names of the classes, in the order of the head's outputs.
inline constexpr MetadataKey<std::vector<std::string>> kClasses{"tpgm.classes", true};
/// The prompt templates of a zero-shot head, or those that a CLIP was trained with.
inline constexpr MetadataKey<std::vector<std::string>> kTemplates{"tpgm.templates", true};
/// A JSON object. Other text, as version 0.1.0 wrote it beside predictions, is ignored.
inline constexpr MetadataKey<ImageView> kView{"tpgm.view", true};

/// How a file was made: the version of this library, the command, and the input files (JSON, see Provenance).
inline constexpr MetadataKey<std::string> kVersion{"tpgm.version"}, kCommand{"tpgm.command"},
    kInputs{"tpgm.inputs"};
/// The ratio of merge_checkpoints().
inline constexpr MetadataKey<double> kRatio{"tpgm.ratio"};
/// In best.safetensors of a run: the final projection is done.
inline constexpr MetadataKey<bool> kFinished{"tpgm.finished"};
/// In resume.safetensors of a run: its progress (JSON).
inline constexpr MetadataKey<std::string> kState{"tpgm.state"};

}  // namespace keys

/// True for keys that are passed on to files made from a checkpoint: the inherited ones, and unknown keys
/// that do not begin with "tpgm.".
bool is_inherited(std::string_view key);

}  // namespace tpgm

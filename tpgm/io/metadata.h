// What a checkpoint says of itself: text under keys, each with one type and one format.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// safetensors' `__metadata__`.
using Metadata = std::map<std::string, std::string>;

/// How images become what a model sees; what a checkpoint does not say is empty.
struct ImageView {
  std::vector<double> mean, std;  ///< of each channel
  std::optional<double> crop_pct;
  std::optional<std::string> interpolation;  ///< "bicubic" or "bilinear"
};

/// A key and the type of its value. T is std::string, bool, double, std::vector<std::string> or ImageView;
/// the last two are written as JSON.
template <typename T>
struct MetadataKey {
  std::string_view name;
  /// Says what the tensors are, and not how the file was made: then it also holds for what is made from them.
  bool inherited = false;

  /// An empty value (false, 0) where the key is not there. Throws, naming it, where its text is no such value.
  T of(const Metadata& metadata) const;
  /// The same; throws where the key is not there.
  T at(const Metadata& metadata) const;
  /// Overwrites what was there. `false` takes the key away.
  void set(Metadata& metadata, const T& value) const;
  /// Takes its text over as it is, where it is there.
  void copy(const Metadata& from, Metadata& to) const;
  bool in(const Metadata& metadata) const { return metadata.contains(std::string(name)); }
};

extern template struct MetadataKey<std::string>;
extern template struct MetadataKey<bool>;
extern template struct MetadataKey<double>;
extern template struct MetadataKey<std::vector<std::string>>;
extern template struct MetadataKey<ImageView>;

/// All keys that this library writes. A new one goes into kAll in metadata.cpp as well.
namespace keys {

/// "pt", without which Hugging Face's readers refuse a file.
inline constexpr MetadataKey<std::string> kFormat{"format", true};
/// The architecture with its sizes, as parse_model() reads it, or "script:FILE".
inline constexpr MetadataKey<std::string> kModel{"tpgm.model", true};
/// The layout that the weights came in, as parse_layout() reads it.
inline constexpr MetadataKey<std::string> kLayout{"tpgm.layout", true};
/// The layer whose features the head takes, where that is not the last.
inline constexpr MetadataKey<std::string> kLayer{"tpgm.layer", true};
/// Features are normalised before the head.
inline constexpr MetadataKey<bool> kNormalize{"tpgm.normalize", true};
/// The names of the head's classes, in its order.
inline constexpr MetadataKey<std::vector<std::string>> kClasses{"tpgm.classes", true};
/// The sentences that a head was made from, or that a CLIP was trained with.
inline constexpr MetadataKey<std::vector<std::string>> kTemplates{"tpgm.templates", true};
/// A JSON object. Other text, as version 0.1.0 wrote it beside predictions, says nothing.
inline constexpr MetadataKey<ImageView> kView{"tpgm.view", true};

/// The version of this library, the command and the input files (JSON, see Provenance) a file was made by.
inline constexpr MetadataKey<std::string> kVersion{"tpgm.version"}, kCommand{"tpgm.command"},
    kInputs{"tpgm.inputs"};
/// Of merge_checkpoints().
inline constexpr MetadataKey<double> kRatio{"tpgm.ratio"};
/// In a run's best.safetensors: the method's final projection is done.
inline constexpr MetadataKey<bool> kFinished{"tpgm.finished"};
/// In a run's resume.safetensors: where the run is (JSON).
inline constexpr MetadataKey<std::string> kState{"tpgm.state"};

}  // namespace keys

/// True for keys that also hold for what is made from a checkpoint: the inherited ones, and all that this
/// library does not know, but for those that begin with "tpgm.".
bool is_inherited(std::string_view key);

}  // namespace tpgm

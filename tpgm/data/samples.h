// A list of encoded images with names and labels, in files or in tar shards: every source of images becomes
// one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpgm {

/// One part of a data set: a domain ("sketch"), a split of a domain ("real", "train"), or the whole data set.
/// Names and labels of a million images take about 100 MB; copies share the names. Images are read on demand.
/// Reading is thread-safe.
class Samples {
 public:
  /// Where the bytes of an image lie in a shard.
  struct Extent {
    uint32_t shard;
    uint32_t size;
    uint64_t offset;
  };

  std::string domain, split;  ///< either may be empty
  /// Labels index into these; -1 is an image without a label.
  std::vector<std::string> classes;
  /// True if the source gives labels as numbers (lists, .cls), which are positions in a list of classes.
  bool numbered = false;

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t i) const { return labels_[static_cast<size_t>(i)]; }
  const std::vector<int32_t>& labels() const { return labels_; }
  /// The name in the source: a path relative to its folder, or the key in a shard.
  std::string_view name(int64_t i) const;
  /// The image for messages: the path of its file, or "shard.tar: " and its key.
  std::string place(int64_t i) const;
  /// Reads the encoded image. Throws Malformed if it cannot be read.
  std::string read(int64_t i) const;
  /// Whether each image is a file of its own, whose path is place().
  bool in_files() const;
  /// Domain and split: "real/train", "sketch", "train".
  std::string title() const;

  /// All images of `parts`, in that order, with the classes of the first, which the others must have, too.
  static Samples joined(std::vector<std::shared_ptr<const Samples>> parts);
  /// What joined() joined; else empty.
  const std::vector<std::shared_ptr<const Samples>>& parts() const { return parts_; }

  // For sources, which fill in the samples:
  void set_root(std::filesystem::path root) { root_ = std::move(root); }
  void set_shards(std::shared_ptr<const std::vector<std::filesystem::path>> shards) {
    shards_ = std::move(shards);
  }
  void add(std::string_view name, int64_t label);
  void add(std::string_view name, int64_t label, const Extent& extent);
  /// Replaces each label by labels[label], except -1, and `classes` by `names`.
  void relabel(const std::vector<int32_t>& labels, std::vector<std::string> names);

 private:
  std::pair<const Samples*, int64_t> in_part(
      int64_t i) const;  // of joined samples: the part, the place in it

  std::filesystem::path root_;
  std::shared_ptr<const std::vector<std::filesystem::path>> shards_;
  // What does not depend on the classes, and is shared by copies.
  struct Entries {
    std::string names;  // all of them, one after another
    std::vector<uint64_t> ends;
    std::vector<Extent> extents;
  };
  Entries& own_entries();  // copies them if another object shares them
  std::shared_ptr<Entries> entries_ = std::make_shared<Entries>();
  std::vector<int32_t> labels_;
  std::vector<std::shared_ptr<const Samples>> parts_;
  std::vector<int64_t> ends_;  // of the parts
};

/// Sets domain and split from folders: "real/train" and "train/real" are the split "train" of the domain
/// "real", "train" is a split without a domain, and "sketch" a domain without splits. Splits are train, val,
/// validation, test, radius and selection.
void set_part(Samples& samples, const std::string& folders);

/// Sets domain and split from the name of a file: "real_train" or "real-train".
void set_part_of_file(Samples& samples, const std::string& stem);

/// Whether the name has the suffix of an image format (formats/format.h), in any case.
bool is_image_name(std::string_view name);

inline constexpr int64_t kMostClasses = 100'000;

/// Whether all names are numbers below kMostClasses; true for no names.
bool all_numbers(const std::vector<std::string>& names);

/// Sorts as class folders are sorted: by value if all names are numbers, else by bytes.
void sort_classes(std::vector<std::string>& names);

}  // namespace tpgm

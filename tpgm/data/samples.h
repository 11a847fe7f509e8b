// Images that lie somewhere, each with a name and a label: what every kind of source becomes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// One part of a data set: a domain ("sketch"), a split of one ("real" "train"), or all there is. Names and
/// labels of a million images take about 100 MB, which copies share but for the labels; pixels are read
/// when asked for. Reading is thread-safe.
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
  /// The source gives labels as numbers (lists, .cls): positions in a list of classes, whatever their names.
  bool numbered = false;

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t i) const { return labels_[static_cast<size_t>(i)]; }
  const std::vector<int32_t>& labels() const { return labels_; }
  /// As the source has it: relative to its folder, or the key in a shard.
  std::string_view name(int64_t i) const;
  /// For messages: the file's path, with "shard.tar: " before a key.
  std::string place(int64_t i) const;
  /// The encoded image. Throws Malformed when it cannot be read.
  std::string read(int64_t i) const;
  /// Whether it is a file of its own, whose path place() is.
  bool in_files() const { return entries_->extents.empty(); }
  /// "real/train", "sketch", "train".
  std::string title() const;

  // For those who make them:
  void set_root(std::filesystem::path root) { root_ = std::move(root); }
  void set_shards(std::shared_ptr<const std::vector<std::filesystem::path>> shards) {
    shards_ = std::move(shards);
  }
  void add(std::string_view name, int64_t label);
  void add(std::string_view name, int64_t label, const Extent& extent);
  /// label = labels[label] for each that has one; `classes` become `names`.
  void relabel(const std::vector<int32_t>& labels, std::vector<std::string> names);

 private:
  std::filesystem::path root_;
  std::shared_ptr<const std::vector<std::filesystem::path>> shards_;
  // What is the same whatever the classes are.
  struct Entries {
    std::string names;  // all of them, one after another
    std::vector<uint64_t> ends;
    std::vector<Extent> extents;
  };
  Entries& own_entries();
  std::shared_ptr<Entries> entries_ = std::make_shared<Entries>();
  std::vector<int32_t> labels_;
};

/// Sets domain and split: of folders "real/train" or "train/real" the split "train" of the domain "real", of
/// "train" a split of no domain, of "sketch" a domain without splits. Splits are train, val, validation,
/// test, radius and selection.
void set_part(Samples& samples, const std::string& folders);

/// The same of a file's name, "real_train" or "real-train".
void set_part_of_file(Samples& samples, const std::string& stem);

/// A name to open an image by: the suffix of a format (formats/format.h), in any case.
bool is_image_name(std::string_view name);

inline constexpr int64_t kMostClasses = 100'000;

/// Whether all are numbers below kMostClasses, or empty.
bool all_numbers(const std::vector<std::string>& names);

/// Numbers by value if all are numbers, else by bytes: the order of class folders.
void sort_classes(std::vector<std::string>& names);

}  // namespace tpgm

// Checks a data set: counts its images, and finds files that cannot be decoded and files with equal bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/data/loader.h"

namespace tpgm {

struct PartReport {
  std::string title;
  int64_t images = 0, bytes = 0;
  std::vector<int64_t> per_class;        ///< for each class of the data set
  std::vector<int64_t> widths, heights;  ///< of the images that can be decoded, sorted
};

/// Two files with the same bytes.
struct Twins {
  std::string first, second;  ///< their places (Samples::place())
  bool apart = false;         ///< they are in different parts of the data set
  bool relabelled = false;    ///< they have different labels
};

struct DatasetReport {
  std::vector<PartReport> parts;
  std::vector<BadImage> unreadable;  ///< ordered by part and position
  /// Ordered by part and position of the second file. Of several equal files, each is paired with the first.
  std::vector<Twins> twins;

  int64_t twins_apart() const;
  /// True if every image can be decoded and no image occurs in two parts: splits and domains must not share
  /// images.
  bool fine() const { return unreadable.empty() && twins_apart() == 0; }
};

/// Reads and decodes every image of `parts`, with all threads of LibTorch. Calls `progress(1)` after each
/// image.
DatasetReport check_dataset(const Dataset& data, const std::vector<Dataset::Part>& parts,
                            int64_t max_pixels = kMaxPixels,
                            const std::function<void(size_t)>& progress = {});

/// Classes without a name and without an image in any part: a sign of wrong labels.
std::vector<std::string> unused_labels(const Dataset& data);

/// A line for each part that lacks some of the classes, such as "sketch lacks 2 of 7 classes: dog, horse".
/// Parts without labels are left out.
std::vector<std::string> missing_classes(const Dataset& data, const DatasetReport& report);

}  // namespace tpgm

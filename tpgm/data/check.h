// What is in a data set, and what is wrong with it.
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
  std::vector<int64_t> widths, heights;  ///< of the readable ones, sorted
};

/// Two files with the same bytes.
struct Twins {
  std::string first, second;  ///< where they are
  bool apart = false;         ///< in two parts of the data set
  bool relabelled = false;    ///< and with two labels
};

struct DatasetReport {
  std::vector<PartReport> parts;
  std::vector<BadImage> unreadable;  ///< by part and position
  std::vector<Twins> twins;          ///< by part and position of the second; each names the first of its kind

  int64_t twins_apart() const;
  /// Nothing unreadable, and no image in two parts: neither train and test nor two domains may share one.
  bool fine() const { return unreadable.empty() && twins_apart() == 0; }
};

/// Reads and decodes every image of `parts`, on all of LibTorch's threads. `progress` is told 1 for each.
DatasetReport check_dataset(const Dataset& data, const std::vector<Dataset::Part>& parts,
                            int64_t max_pixels = kMaxPixels,
                            const std::function<void(size_t)>& progress = {});

/// Labels that no image of any part has and that have no name: the labels are wrong.
std::vector<std::string> unused_labels(const Dataset& data);

}  // namespace tpgm

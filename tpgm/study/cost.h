// Estimates the cost of runs: steps and images from their options, time from a measured speed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tpgm/train/options.h"

namespace tpgm {

/// The cost of one run, or the sum over many.
struct Cost {
  int64_t runs = 0, steps = 0;
  int64_t training = 0, radius = 0, evaluation = 0;  ///< images

  Cost& operator+=(const Cost& other);
  /// The cost in training images, the unit of measure_speed(). A radius image counts as 1, an evaluated image
  /// (only a forward pass) as 1/3.
  double work() const;
};

/// The numbers of images of a run.
struct DataSize {
  int64_t train = 0, radius = 0, selection = 0, tests = 0;
};

/// Finds the DataSize of runs; opens the data once for all runs with the same data.
class DataSizes {
 public:
  /// Throws the errors of open_data().
  DataSize of(const TrainOptions& options);

 private:
  std::map<Settings, DataSize> known_;  // by the settings with Trait::kData
};

/// The cost of a run that does not stop early.
Cost cost_of(const TrainOptions& options, const DataSize& size);

/// Scales a run down: multiplies the fractions of data and tests, the epochs (at least 1, if there are any),
/// warm-up, linear probing, patience, decay epochs, and the radius steps of a final projection by `scale`.
/// Keys in `given` are not changed.
void scale_down(Settings& settings, double scale, const Settings& given);

/// Measures the training images per second over twenty steps, or those of five seconds, after a few warm-up
/// steps. Calls `stop` after every step; returns 0 if it was true.
double measure_speed(TrainOptions options, const std::function<bool()>& stop);

}  // namespace tpgm

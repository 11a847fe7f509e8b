// What runs will take: steps and images from their options, seconds from a speed that is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tpgm/train/options.h"

namespace tpgm {

/// Of one run or of many.
struct Cost {
  int64_t runs = 0, steps = 0;
  int64_t training = 0, radius = 0, evaluation = 0;  ///< images

  Cost& operator+=(const Cost& other);
  /// In images trained on, which is what a speed counts: one to learn radii from costs as much, one that is
  /// only evaluated a third (a forward pass).
  double work() const;
};

/// Images in the sets of a run.
struct DataSize {
  int64_t train = 0, radius = 0, selection = 0, tests = 0;
};

/// Opens data once for all runs with the same.
class DataSizes {
 public:
  /// Throws what open_data() throws.
  DataSize of(const TrainOptions& options);

 private:
  std::map<Settings, DataSize> known_;  // by what the data depend on
};

/// Of a run that does not stop early.
Cost cost_of(const TrainOptions& options, const DataSize& size);

/// Makes a plan smaller: a share of the data, of the tests and of the epochs (at least one, where there are
/// any), also of warm-up, probing, patience and a stepped schedule, and of radius steps where they come at
/// the end. Keys in `given` stay.
void scale_down(Settings& settings, double scale, const Settings& given);

/// Images trained on in a second, in a few real steps: twenty, or as many as five seconds have room for. The
/// first ones are not counted. Asks `stop` after every step; 0 if that came true.
double measure_speed(TrainOptions options, const std::function<bool()>& stop);

}  // namespace tpgm

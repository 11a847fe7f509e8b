// Images apart: for training, for the radii, for selection, for testing; none in two of them.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"

namespace tpgm {

/// Images of one part, in the order they are used when nobody shuffles.
struct SampleSubset {
  Dataset::Part samples;
  std::vector<int64_t> indices;

  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};
/// All of a part.
SampleSubset all_of(Dataset::Part samples);

/// That fraction of each class of `subset`, at least one image of each, chosen by the seed. What split() did
/// with the same seed has no influence, so a part that it held out is thinned as evenly as a whole one.
SampleSubset thinned(SampleSubset subset, double fraction, uint64_t seed);

struct SplitOptions {
  /// Of each class, how much is used at all: 0.1 for the paper's small setting. At least one image.
  TORCH_ARG(double, fraction) = 1;
  /// Of what is used, shares that are held out. Whatever is left is for training: at least one of each class.
  TORCH_ARG(double, radius) = 0.1;
  TORCH_ARG(double, selection) = 0.1;
  TORCH_ARG(double, test) = 0;
  TORCH_ARG(uint64_t, seed) = 0;
};

struct Split {
  SampleSubset train, radius, selection, test;
};

/// Stratified: each class is shuffled by the seed and cut by the shares, whose rounding evens out over the
/// classes. Each part is in the order of the samples. A function of labels and options alone.
Split split(const Dataset::Part& samples, const SplitOptions& options);

/// What an experiment needs.
struct TaskData {
  SampleSubset train, radius, selection;
  std::vector<std::pair<std::string, SampleSubset>> tests;  // by the names they were asked for by
  /// How each came about, for the log: "radius: 10 % held out of real/train, 12065 images".
  std::vector<std::string> notes;
};

/// From the data set's own splits where it has them: DOMAIN/train, DOMAIN/radius, DOMAIN/selection,
/// DOMAIN/test. What is missing is held out from the training domain by `options`, a test of the training
/// domain too (a share of options.test, or 0.2 if that is 0). Throws if a file is in two of them.
TaskData make_task(const Dataset& data, const std::string& train, const std::vector<std::string>& tests,
                   const SplitOptions& options);

/// Throws c10::Error, naming an image, if two of the subsets share one, or one has it twice.
void check_disjoint(const std::vector<std::pair<std::string, const SampleSubset*>>& subsets);

}  // namespace tpgm

// Splits a data set into disjoint subsets: for training, for the radii, for model selection and for testing.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"

namespace tpgm {

/// Images of one part, in the order in which a loader without shuffling reads them.
struct SampleSubset {
  Dataset::Part samples;
  std::vector<int64_t> indices;

  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};
/// All images of a part.
SampleSubset all_of(Dataset::Part samples);

/// That fraction of each class of `subset`, at least one image of each, chosen by the seed. What split() did
/// with the same seed has no influence, so a part that it held out is thinned as evenly as a whole one.
SampleSubset thinned(SampleSubset subset, double fraction, uint64_t seed);

struct SplitOptions {
  /// The share of each class that is used at all, at least one image: 0.1 in the paper's setting with few
  /// images.
  TORCH_ARG(double, fraction) = 1;
  /// The shares of the used images that are held out. The rest is for training, at least one image of each
  /// class.
  TORCH_ARG(double, radius) = 0.1;
  TORCH_ARG(double, selection) = 0.1;
  TORCH_ARG(double, test) = 0;
  TORCH_ARG(uint64_t, seed) = 0;
};

struct Split {
  SampleSubset train, radius, selection, test;
};

/// A stratified split: each class is shuffled by the seed and cut by the shares; rounding errors even out
/// over the classes. Each subset keeps the order of the samples. The split is a function of the labels and
/// the options.
Split split(const Dataset::Part& samples, const SplitOptions& options);

/// The share of a training domain that is held out for its test, if it has none.
inline constexpr double kTestShare = 0.2;

/// The parts that these names stand for in training: at most one of each domain. Throws if images of one have
/// no label.
std::vector<Dataset::Part> training_parts(const Dataset& data, const std::vector<std::string>& names);

/// The sets of one training domain.
struct DomainSplit {
  SampleSubset train, radius, selection, test;
  SplitOptions shares;  ///< what was held out: 0 where the domain has a split of its own
  Dataset::Part own_radius, own_selection, own_test;  ///< the splits of its own, or null
};
/// Splits a part as split() does, but uses the splits DOMAIN/radius, DOMAIN/selection and DOMAIN/test (or
/// val, or validation) of its domain if the data set has them.
DomainSplit split_domain(const Dataset& data, const Dataset::Part& source, const SplitOptions& options);

/// The images of an experiment.
struct TaskData {
  SampleSubset train, radius, selection;
  std::vector<std::pair<std::string, SampleSubset>> tests;  ///< with the names they were requested by
  /// Where each subset comes from, for the log: "radius: 10 % held out of real/train, 12,065 images".
  std::vector<std::string> notes;
};

/// Uses the data set's own splits if it has them: DOMAIN/train, DOMAIN/radius, DOMAIN/selection and
/// DOMAIN/test. Missing splits of a training domain are held out from its training images by `options`; a
/// test split gets the share options.test, or kTestShare if that is 0, if the domain is among `tests`. Each
/// domain is split as if it were alone, and their images are joined. Throws if a file is in two of the
/// subsets.
TaskData make_task(const Dataset& data, const std::vector<std::string>& train,
                   const std::vector<std::string>& tests, const SplitOptions& options);

/// Throws c10::Error, naming an image, if two of the subsets share one, or one has it twice.
void check_disjoint(const std::vector<std::pair<std::string, const SampleSubset*>>& subsets);

}  // namespace tpgm

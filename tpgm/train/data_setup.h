// The data of a run: what is trained on, what is held out, what is tested on.
#pragma once

#include <string>
#include <vector>

#include "tpgm/data/split.h"
#include "tpgm/train/options.h"

namespace tpgm {

/// Images to be scored on.
struct TestSet {
  std::string name;
  SampleSubset subset;
  bool id = false;  ///< in-distribution
};
/// "test NAME has 21 images: one of them is 4.8 points ..." for a test of fewer than 100, else empty.
std::string few_images_note(const TestSet& test);

/// The data set of the options, with `class-list` as its classes where that is given.
Dataset open_dataset(const TrainOptions& options);

/// The data of a run: its own splits, or what is held out, as the options say; the training domain's own test
/// first among `tests`.
struct RunData {
  std::vector<std::string> classes;
  SampleSubset train, radius, selection;
  std::vector<TestSet> tests;
  std::vector<std::string> notes;
};
/// `data` is options.data_dir, its classes in the head's order. Throws if an image is in two sets.
RunData open_data(const TrainOptions& options, const Dataset& data);
/// The same of a data set that nobody has opened. `classes`: in the head's order, or empty for its own.
RunData open_data(const TrainOptions& options, const std::vector<std::string>& classes);

/// Tests alone, for a model with these classes, without a training domain: each is a part of options.data_dir
/// or NAME=PATH. Of a run, with options.train, what open_data() holds out.
std::vector<TestSet> open_tests(const TrainOptions& options, const std::vector<std::string>& classes);

/// Of which images are trained on, in which order, and what is held out: a run is resumed with the same ones.
std::string fingerprint_of(const RunData& data);

}  // namespace tpgm

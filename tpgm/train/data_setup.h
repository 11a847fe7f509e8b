// The data of a run: training, radius and selection data, and tests.
#pragma once

#include <string>
#include <vector>

#include "tpgm/data/split.h"
#include "tpgm/train/options.h"

namespace tpgm {

/// The images of a test.
struct TestSet {
  std::string name;
  SampleSubset subset;
  bool id = false;  ///< in-distribution
};
/// "test NAME has 21 images: one of them is 4.8 points ..." for a test of fewer than 100, else empty.
std::string few_images_note(const TestSet& test);

/// Opens the data set of the options, with the classes of `class-list` if that is given.
Dataset open_dataset(const TrainOptions& options);

/// The data of a run: splits of the data set, or held-out fractions, as the options say. The test of the
/// training domain is the first of `tests`.
struct RunData {
  std::vector<std::string> classes;
  SampleSubset train, radius, selection;
  std::vector<TestSet> tests;
  std::vector<std::string> notes;
};
/// `data` is options.data_dir with its classes in the order of the head. Throws if an image is in two sets.
RunData open_data(const TrainOptions& options, const Dataset& data);
/// The same, opening the data set. `classes` is the order of the head, or empty for the order of the data
/// set.
RunData open_data(const TrainOptions& options, const std::vector<std::string>& classes);

/// The tests alone, for a model with these classes: each is a part of options.data_dir or NAME=PATH. If
/// options.train is given, they are the tests of open_data().
std::vector<TestSet> open_tests(const TrainOptions& options, const std::vector<std::string>& classes);

/// A hash of the training, radius and selection images and their order. A run must be resumed with the same
/// data.
std::string fingerprint_of(const RunData& data);

}  // namespace tpgm

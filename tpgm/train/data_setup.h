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
  bool id = false;          ///< in-distribution
  std::string unread = {};  ///< unread_note() of its data set
};
/// "test set photos has only 33 images (3.03 points each): too few to compare models", for all tests of fewer
/// than 100 images; empty if there are none.
std::string few_images_note(const std::vector<TestSet>& tests);

/// What data are opened for. Some mistakes in them are errors only for a new run: a run that an older version
/// made has notes on them, because its data are what they are.
enum class DataUse { kNewRun, kOlderRun };

/// Opens the data set of the options, with the classes of `class-list` if that is given. If it is not, throws
/// for a new run if one part has a class "dog" and another "Dog".
Dataset open_dataset(const TrainOptions& options, DataUse use = DataUse::kNewRun);

/// The data of a run: splits of the data set, or held-out fractions, as the options say. The tests of the
/// training domains are the first of `tests`, without those for which nothing is held out.
struct RunData {
  std::vector<std::string> classes;
  SampleSubset train, radius, selection;
  std::vector<TestSet> tests;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;  ///< those of the notes that matter to whoever uses the run
};
/// `data` is options.data_dir with its classes in the order of the head. Throws if an image is in two sets,
/// or, for a new run, if nothing is held out for the test of the training domain and there is no other test.
RunData open_data(const TrainOptions& options, const Dataset& data, DataUse use = DataUse::kNewRun);
/// The same, opening the data set. `classes` is the order of the head, or empty for the order of the data
/// set.
RunData open_data(const TrainOptions& options, const std::vector<std::string>& classes,
                  DataUse use = DataUse::kNewRun);

/// The tests alone, for a model with these classes: each is a part of options.data_dir or NAME=PATH. If
/// options.train is given, they are the tests of open_data() for an older run.
std::vector<TestSet> open_tests(const TrainOptions& options, const std::vector<std::string>& classes);

/// Why there are no radius data, and what helps: the end of an error.
std::string no_radius_data(const TrainOptions& options, const RunData& data);

/// "38 of 102 images are left out of each epoch, ..." if batches of this size, `grad-accum-steps` of them for
/// each step, leave out a tenth of the training images or more; else empty.
std::string left_out_note(const TrainOptions& options, const RunData& data);

/// A hash of the training, radius and selection images and their order. A run must be resumed with the same
/// data.
std::string fingerprint_of(const RunData& data);

}  // namespace tpgm

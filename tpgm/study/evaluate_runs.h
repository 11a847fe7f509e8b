// Evaluates runs and checkpoints on the same tests, in-distribution and out-of-distribution.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tpgm/study/given_classifier.h"
#include "tpgm/study/results.h"
#include "tpgm/train/data_setup.h"
#include "tpgm/train/evaluate.h"
#include "tpgm/train/options.h"

namespace tpgm {

/// A run or a checkpoint to evaluate, and its results.
struct EvaluatedRow {
  std::string name, path;
  bool run = false;       ///< `path` is a run folder
  bool of_a_run = false;  ///< its tests are those of a run, including held-out images
  TrainOptions options;
  bool list_given = false;  ///< `class-list` was given, and does not come from a recipe
  int64_t batch_size = 64;
  std::shared_ptr<const std::vector<TestSet>> tests;
  std::vector<std::string> classes;
  std::vector<Accuracy> results;  ///< of each test

  GivenClassifier open(const std::string& head, const Say& note) const;
  /// The checkpoint, or that of the run.
  std::string weights() const;
};

/// A row for each run folder or checkpoint; "NAME=PATH" names the row. Options of a run come from its recipe,
/// and data options of a checkpoint from the recipe of the first run. `given` overrides both; if it has a
/// data set, the data options of recipes are ignored.
std::vector<EvaluatedRow> rows_to_evaluate(const std::vector<std::string>& checkpoints, const Settings& given,
                                           const Say& say);

/// The option that is missing to find the tests of a row, "test" or "data-dir"; empty if none is.
std::string missing_option(const EvaluatedRow& row);

/// Takes tests, classes and top-1 accuracy from the results of finished runs. Returns false, and leaves the
/// rows as they are, unless each row is a run with a result for the weights that it has now (by their
/// fingerprint), and all were tested on the same data. What the images on the disk are now is not looked at.
/// Top-5 accuracy and losses remain open.
bool take_results(std::vector<EvaluatedRow>& rows);

/// Opens the tests of all rows and finds their classes. All mistakes in options and files are errors here,
/// before the first image is read. `head` is a head file made from text, for checkpoints without a head.
void open_tests(std::vector<EvaluatedRow>& rows, const std::string& head, const Say& say);

/// Evaluates all rows. Calls `progress` with the number of images since its last call.
void evaluate(std::vector<EvaluatedRow>& rows, const std::string& head, c10::Device device,
              const std::function<void(size_t)>& progress, const Say& say);

/// `score`: &Accuracy::top1 or top5.
std::vector<ResultRow> results_of(const std::vector<EvaluatedRow>& rows, double (Accuracy::*score)() const);
/// A line about the classes that were scored over.
std::string scored_text(const std::vector<EvaluatedRow>& rows);
/// The number of unreadable images.
int64_t skipped_of(const std::vector<EvaluatedRow>& rows);

nlohmann::ordered_json to_json(const std::vector<EvaluatedRow>& rows);
/// A line for each row and test.
std::string to_csv(const std::vector<EvaluatedRow>& rows);
/// A line for each row, test and class.
std::string per_class_csv(const std::vector<EvaluatedRow>& rows);

}  // namespace tpgm

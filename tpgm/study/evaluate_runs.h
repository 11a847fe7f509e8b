// How often runs and checkpoints are correct, in distribution and out of it, side by side.
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

/// A run or a checkpoint to be scored, and what came of it.
struct EvaluatedRow {
  std::string name, path;
  bool run = false;       ///< `path` is a run folder
  bool of_a_run = false;  ///< its data are a run's, with what that held out
  TrainOptions options;
  bool list_given = false;  ///< `class-list` is given, and not from a recipe
  int64_t batch_size = 64;
  std::shared_ptr<const std::vector<TestSet>> tests;
  std::vector<std::string> classes;
  std::vector<Accuracy> results;  ///< of each test

  GivenClassifier open(const std::string& head, const Say& note) const;
};

/// Run folders, or any checkpoints; "NAME=PATH" names the row. `given` beats the recipe of a run, or, of a
/// checkpoint by itself, what the first run says of its data. Where `given` has a data set, what recipes say
/// of theirs does not count.
std::vector<EvaluatedRow> rows_to_evaluate(const std::vector<std::string>& checkpoints, const Settings& given,
                                           const Say& say);

/// The option without which it is not known what a row is tested on: "test" or "data-dir"; empty if it is.
std::string missing_option(const EvaluatedRow& row);

/// Opens tests and reads classes. Whatever can be wrong is, here and before the first image is read. `head`:
/// a file made from text, for checkpoints without a head.
void open_tests(std::vector<EvaluatedRow>& rows, const std::string& head, const Say& say);

/// Scores all rows. `progress` is told how many images were scored since it was last called.
void evaluate(std::vector<EvaluatedRow>& rows, const std::string& head, c10::Device device,
              const std::function<void(size_t)>& progress, const Say& say);

/// `score`: &Accuracy::top1 or top5.
std::vector<ResultRow> results_of(const std::vector<EvaluatedRow>& rows, double (Accuracy::*score)() const);
/// Over which classes, in a line: no accuracy means anything without.
std::string scored_text(const std::vector<EvaluatedRow>& rows);
/// Images that could not be read.
int64_t skipped_of(const std::vector<EvaluatedRow>& rows);

nlohmann::ordered_json to_json(const std::vector<EvaluatedRow>& rows);
/// A line for each row and test.
std::string to_csv(const std::vector<EvaluatedRow>& rows);
/// A line for each row, test and class.
std::string per_class_csv(const std::vector<EvaluatedRow>& rows);

}  // namespace tpgm

// The runs of a paper's table: their order, their cost, and their results.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/report/table.h"
#include "tpgm/study/comparison.h"
#include "tpgm/study/cost.h"
#include "tpgm/study/jobs.h"
#include "tpgm/study/tables.h"

namespace tpgm {

struct ReproduceOptions {
  Settings given;                  ///< override the recipes, and are not scaled
  std::vector<std::string> seeds;  ///< empty: those of the recipes
  std::vector<std::string> rows;   ///< recipes or labels of the rows to make; empty: all
  std::optional<Choose> choose;    ///< overrides the recipes
  double scale = 1;
  std::filesystem::path output;  ///< the folder in which the folder of the table is
  JobOptions jobs;
};

/// The cost of the runs of a table.
struct PlanCost {
  std::string name;                                ///< of the table
  std::vector<std::pair<std::string, Cost>> rows;  ///< by variant, in the order in which they are made
  Cost all;
  Cost left;  ///< of the runs that are not finished
  size_t finished = 0;
};
/// A line for each row, and one for their sum.
Table to_table(const PlanCost& cost);

class TablePlan {
 public:
  /// Throws if a row takes values from itself, from a row that does not exist, or an option that row does not
  /// have.
  TablePlan(PaperTable table, const ReproduceOptions& options);

  PlanCost cost(DataSizes& sizes) const;
  /// The run whose speed is measured for the estimate: the first that trains the whole model.
  TrainOptions example() const;

  /// Makes all runs that are not finished. False if any failed.
  bool run(DataSizes& sizes);
  /// The folders of the best run of each row, for every seed.
  std::vector<std::filesystem::path> best_runs() const;
  PaperComparison comparison() const;

 private:
  /// The value of `key` comes from the best run of another row: one of its options or, for the key "weights",
  /// its folder.
  struct Dependency {
    std::string key;
    std::string option;  // of the other row; empty: its folder
    size_t row;
  };
  /// Rows of the same variant share one of these.
  struct PlannedRow {
    std::string variant;
    Recipe recipe;
    std::vector<Dependency> dependencies;
    bool wanted = false;
  };
  struct Outcome {
    std::vector<JobResult> results, best;  // best of the results; empty: not made, or all failed
    std::string error;
    bool done = false;
  };
  using Outcomes = std::vector<Outcome>;  // of each row

  size_t find(const std::string& variant) const;
  void link();
  void sort();
  bool ready(size_t row, const Outcomes& outcomes) const;
  std::optional<std::vector<Job>> resolve(size_t row, Outcomes& outcomes) const;
  std::vector<Job> expected_jobs(size_t row) const;
  Outcome outcome_of(size_t row, std::vector<JobResult> results) const;
  std::vector<std::string> facts() const;

  PaperTable table_;
  ReproduceOptions options_;
  std::filesystem::path folder_;
  std::vector<PlannedRow> rows_;
  std::vector<size_t> order_;  // rows after those that they depend on
  Outcomes outcomes_;
};

}  // namespace tpgm

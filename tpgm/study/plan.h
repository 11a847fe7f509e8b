// A table's runs: what they are, what they cost, in which order, and what came of them.
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
  Settings given;                  ///< they beat recipes, and are not scaled
  std::vector<std::string> seeds;  ///< empty: the recipes'
  std::vector<std::string> rows;   ///< recipes or labels of those to make; empty: all
  double scale = 1;
  std::filesystem::path output;  ///< in which the table has a folder of its name
  JobOptions jobs;
};

/// What the runs of a table take.
struct PlanCost {
  std::string name;                                ///< the table's
  std::vector<std::pair<std::string, Cost>> rows;  ///< by variant, in the order in which they are made
  Cost all;
  Cost left;  ///< of the runs that are not finished
  size_t finished = 0;
};
/// A line for each row, and one for all.
Table to_table(const PlanCost& cost);

class TablePlan {
 public:
  /// Throws for rows that take from themselves, from others that are not there, or what these do not have.
  TablePlan(PaperTable table, const ReproduceOptions& options);

  PlanCost cost(DataSizes& sizes) const;
  /// A run whose speed stands for all: the first that trains the whole model.
  TrainOptions example() const;

  /// Makes all runs; those that are finished are not made again. False if any failed.
  bool run(DataSizes& sizes);
  /// Folders of the runs that rows stand on: the best of each, for every seed.
  std::vector<std::filesystem::path> best_runs() const;
  PaperComparison comparison() const;

 private:
  /// `key` is what the best run of another row has: an option, or, for the key "weights", its folder.
  struct Dependency {
    std::string key;
    std::string option;  // of the other row; empty: its folder
    size_t row;
  };
  /// What rows of the same variant share.
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
  static Outcome outcome_of(std::vector<JobResult> results);
  std::vector<std::string> facts() const;

  PaperTable table_;
  ReproduceOptions options_;
  std::filesystem::path folder_;
  std::vector<PlannedRow> rows_;
  std::vector<size_t> order_;  // those that others depend on first
  Outcomes outcomes_;
};

}  // namespace tpgm

// A table's runs: what they are, what they cost, in which order, and what came of them.
#pragma once

#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/cost.h"
#include "tools/reproduce_report.h"
#include "tools/reproduce_table.h"
#include "tools/sweep.h"

namespace tpgm::tools {

struct ReproduceOptions {
  Settings given;                  ///< on the command line: they beat recipes, and are not scaled
  std::vector<std::string> seeds;  ///< empty: the recipes'
  std::vector<std::string> rows;   ///< recipes or labels of those to make; empty: all
  double scale = 1;
  int64_t side_by_side = 1;
  std::filesystem::path output;
  std::string what = "tpgm reproduce";  ///< begins lines on stderr
};

class TablePlan {
 public:
  /// Throws for rows that take from themselves, from others that are not there, or what these do not have.
  TablePlan(PaperTable table, const ReproduceOptions& options);

  /// Runs, steps and pictures: a line for each recipe, and one for all.
  Table cost_table(DataSizes& sizes);
  /// Of the runs that are not finished.
  Cost left() const { return left_; }
  size_t finished() const { return finished_; }
  /// A run whose rate stands for all: the first that trains the whole model.
  TrainOptions example() const;

  /// Makes all runs; calling it again goes on. False if any failed.
  bool run(DataSizes& sizes);
  /// Folders of the runs that rows stand on: the best of each, for every seed.
  std::vector<std::filesystem::path> best_runs() const;
  Comparison comparison() const;

 private:
  struct Take {
    std::string key, of;  // of: a key of the other's; empty: its runs' folders
    size_t from;
  };
  /// What rows with the same spec share.
  struct Work {
    std::string spec;
    Recipe recipe;
    std::vector<Take> takes;
    bool wanted = false;
    std::vector<JobResult> results;
    std::vector<const JobResult*> best;  // of results; empty: not made, or all failed
    std::string error;
    bool done = false;
  };

  size_t find(const std::string& spec) const;
  void link();
  void sort();
  std::optional<std::vector<Job>> resolve(Work& work) const;
  std::vector<Job> guess(const Work& work) const;
  void take_results(Work& work, std::vector<JobResult> results);
  std::vector<std::string> facts() const;

  PaperTable table_;
  ReproduceOptions options_;
  std::filesystem::path folder_;
  std::vector<Work> works_;
  std::vector<size_t> order_;          // those that others take from first
  std::deque<std::vector<Job>> jobs_;  // what results point to
  Cost left_;
  size_t finished_ = 0;
};

}  // namespace tpgm::tools

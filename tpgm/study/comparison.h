// Compares the results of a table with those of the paper: as a table, CSV and JSON.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/report/table.h"
#include "tpgm/study/results.h"
#include "tpgm/study/tables.h"

namespace tpgm {

struct ComparedRow {
  std::string label, variant;
  std::vector<Score> scores;                        ///< ours; empty: the row failed
  Hits hits;                                        ///< of our runs; may be unknown
  std::vector<std::optional<PaperNumber>> numbers;  ///< of the paper, by PaperComparison::tests
  std::string chosen;                               ///< "lr=0.01"; empty without a sweep
  size_t seeds = 0;
  std::string error;
};

struct PaperComparison {
  std::string name;
  std::vector<std::pair<std::string, std::string>> tests;  ///< name and title of each test of the paper
  std::vector<ComparedRow> rows;
  std::vector<std::string> facts;  ///< sentences about the command, seeds, scale and device
  size_t plain = 0;  ///< the row of plain fine-tuning, with which arrows compare; else the first
};

/// Columns: in-distribution tests, other tests, averages, and changes relative to the first row. A row of the
/// paper has our numbers, those of the paper and the differences; other rows have ours alone. Throws if no
/// row has numbers.
Table to_table(const PaperComparison& comparison);

/// A line for each row and test: row,recipe,test,id,mean,std,seeds,paper,paper_std,difference.
std::string long_csv(const PaperComparison& comparison);

/// Writes table.md, table.tex and table.csv (long_csv) into a folder, with the command that made them.
void write_tables(const PaperComparison& comparison, const std::filesystem::path& folder,
                  const std::string& command);

nlohmann::ordered_json to_json(const PaperComparison& comparison);

}  // namespace tpgm

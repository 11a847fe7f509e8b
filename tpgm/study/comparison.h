// Our numbers beside the paper's: as a table, as CSV, as JSON, and what has to be said of them.
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
  std::vector<Score> scores;                        ///< ours; empty: it failed
  std::vector<std::optional<PaperNumber>> numbers;  ///< the paper's, by PaperComparison::tests
  std::string chosen;                               ///< "lr=0.01"; empty: nothing was swept
  size_t seeds = 0;
  std::string error;
};

struct PaperComparison {
  std::string name;
  std::vector<std::pair<std::string, std::string>> tests;  ///< name and title, as the paper has them
  std::vector<ComparedRow> rows;
  std::vector<std::string> facts;  ///< sentences: the command, seeds, scale, device
};

/// Tests in distribution first, then averages, then changes against the first row. Of every row that the
/// paper has: ours, the paper's and the difference; of others ours alone. Throws if no row has numbers.
Table to_table(const PaperComparison& comparison);

/// A line for each row and test: row,recipe,test,id,mean,std,seeds,paper,paper_std,difference.
std::string long_csv(const PaperComparison& comparison);

/// Writes table.md, table.tex and table.csv (long_csv) into a folder, with the command that made them.
void write_tables(const PaperComparison& comparison, const std::filesystem::path& folder,
                  const std::string& command);

nlohmann::ordered_json to_json(const PaperComparison& comparison);

}  // namespace tpgm

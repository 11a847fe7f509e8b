// The text of paper.csv: the tests, rows and numbers of a table in a paper.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpgm {

/// A cell: "80.93 (0.08)".
struct PaperNumber {
  double mean = 0;
  std::optional<double> deviation;
};

struct PaperCsv {
  struct Row {
    int line = 0;  ///< in the file, from 1
    std::string label, variant;
    /// The parts of the variant "tpgm:mu=0.1,norm=l2": the name of a recipe, and settings for it.
    std::string recipe;
    std::vector<std::pair<std::string, std::string>> settings;
    std::vector<std::optional<PaperNumber>> numbers;  ///< by test
  };
  std::vector<std::pair<std::string, std::string>> tests;  ///< name and title
  std::vector<Row> rows;
};

/// The header `row,recipe,real=Real,...`, then lines of a label, a variant and cells, which may be empty; empty lines
/// and lines that begin with # are left out. Throws Malformed, naming the line, for any other content.
PaperCsv parse_paper_csv(std::string_view text);

/// Without blanks at both ends.
std::string without_blanks(std::string_view text);

}  // namespace tpgm

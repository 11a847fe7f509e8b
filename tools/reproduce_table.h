// The tables that `tpgm reproduce` makes: a folder each, with paper.csv and a recipe for every row.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/train/recipe.h"

namespace tpgm::tools {

/// A cell: "80.93 (0.08)".
struct PaperNumber {
  double mean = 0;
  std::optional<double> deviation;
};

struct PaperRow {
  std::string label;
  /// "tpgm", or "tpgm:mu=0.1,norm=l2": a recipe, and what is other than it says. Rows with the same one share
  /// their runs; others take from them by it.
  std::string spec;
  Recipe recipe;
  std::vector<std::optional<PaperNumber>> numbers;  ///< by test
};

struct PaperTable {
  std::string name;                                        ///< "glyphs/vit"
  std::vector<std::pair<std::string, std::string>> tests;  ///< name and title
  std::vector<PaperRow> rows;
};

/// Reads FOLDER/paper.csv: `row,recipe,real=Real,...`, then a label, a recipe beside it and cells, which may
/// be empty. Throws, naming file and line, for anything else.
PaperTable load_table(const std::filesystem::path& folder, const std::string& name);

/// Where recipes may lie: `given` alone, or ./recipes, those of the source tree and the installed ones.
std::vector<std::filesystem::path> recipe_roots(const std::string& given = "");

struct TableFolder {
  std::string name;
  std::filesystem::path path;
};
/// Folders with a paper.csv: `path` itself, or all that are below it, with names that begin with `name`.
std::vector<TableFolder> tables_below(const std::filesystem::path& path, const std::string& name);

/// Tables by path or by name, each of which may stand for several. Throws, with the nearest, for one that is
/// not there.
std::vector<TableFolder> find_tables(const std::vector<std::string>& names, const std::string& recipes);

/// `tpgm list recipes`.
struct RecipeInfo {
  std::string name, about;
  std::filesystem::path path;
  bool table = false;
};
std::vector<RecipeInfo> list_recipes();

}  // namespace tpgm::tools

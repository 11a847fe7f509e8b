// Tables of papers: a folder each, with paper.csv and a recipe for every row.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/train/recipe.h"

namespace tpgm {

/// A cell: "80.93 (0.08)".
struct PaperNumber {
  double mean = 0;
  std::optional<double> deviation;
};

struct PaperRow {
  std::string label;
  /// "tpgm", or "tpgm:mu=0.1,norm=l2": a recipe by its file's name, and settings that replace its own. Rows
  /// of the same variant share their runs, and it is the name by which other rows take from them.
  std::string variant;
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

struct TableFolder {
  std::string name;
  std::filesystem::path path;
};
/// Folders with a paper.csv: `path` itself, or all that are below it, with names that begin with `name`.
std::vector<TableFolder> tables_below(const std::filesystem::path& path, const std::string& name);

/// Tables by path, or by name below tables/ of one of `roots`, the first that has it; each may stand for
/// several. Throws, with the nearest, for one that is not there.
std::vector<TableFolder> find_tables(const std::vector<std::string>& names,
                                     const std::vector<std::filesystem::path>& roots);

/// A recipe, or a table of them.
struct RecipeInfo {
  std::string name, about;
  std::filesystem::path path;
  bool table = false;
};
/// What is in a folder of recipes: the tables below tables/, then all others.
std::vector<RecipeInfo> list_recipes(const std::filesystem::path& root);

}  // namespace tpgm

// Tables of papers. Each is a folder with paper.csv, the numbers of the paper, and a recipe for every row.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/study/paper_csv.h"
#include "tpgm/train/recipe.h"

namespace tpgm {

struct PaperRow {
  std::string label;
  /// The name of a recipe, with settings that override it: "tpgm" or "tpgm:mu=0.1,norm=l2". Rows of the same
  /// variant share their runs. Other rows take values from them by this name.
  std::string variant;
  Recipe recipe;
  std::vector<std::optional<PaperNumber>> numbers;  ///< by test
};

struct PaperTable {
  std::string name;                                        ///< "glyphs/vit"
  std::vector<std::pair<std::string, std::string>> tests;  ///< name and title
  std::vector<PaperRow> rows;
};

/// Reads FOLDER/paper.csv and the recipes that it names. Throws, naming file and line, for anything else.
PaperTable load_table(const std::filesystem::path& folder, const std::string& name);

struct TableFolder {
  std::string name;
  std::filesystem::path path;
};
/// The folders with a paper.csv: `path` itself, or all below it. Their names begin with `name`.
std::vector<TableFolder> tables_below(const std::filesystem::path& path, const std::string& name);

/// Finds tables by path, or by name in tables/ of the first of `roots` that has it. A name may stand for
/// several tables. Throws, with the nearest name, if there is none.
std::vector<TableFolder> find_tables(const std::vector<std::string>& names,
                                     const std::vector<std::filesystem::path>& roots);

/// A recipe or a table.
struct RecipeInfo {
  std::string name, about;
  std::filesystem::path path;
  bool table = false;
};
/// The content of a folder of recipes: the tables in tables/, then all recipes.
std::vector<RecipeInfo> list_recipes(const std::filesystem::path& root);

}  // namespace tpgm

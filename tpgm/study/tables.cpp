// The recipes of tables, and the folders that have a paper.csv.
#include "tpgm/study/tables.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"
#include "tpgm/io/folder.h"
#include "tpgm/study/sweep.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPaper = "paper.csv";

// The recipe of a row, with the settings of the row.
Recipe recipe_of_row(const PaperCsv::Row& row, const fs::path& folder, const std::string& where) {
  const fs::path file = folder / (row.recipe + ".toml");
  if (!fs::is_regular_file(file)) {
    std::vector<std::string> stems;
    for (const auto& entry : entries_of(folder)) {
      if (entry.extension() == ".toml") stems.push_back(entry.stem().string());
    }
    TORCH_CHECK(false, where, ": no recipe '", printable(file.filename().string()), "'",
                did_you_mean(row.recipe, stems));
  }
  Recipe recipe = load_recipe(file);
  Settings other;
  for (const auto& [key, value] : row.settings) other[key] = value;
  if (!other.empty()) override_with(recipe, other);
  return recipe;
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The first sentence of the comment at the beginning.
std::string first_sentence(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  for (std::string line; std::getline(stream, line) && line.starts_with('#');) {
    const auto words = without_blanks(line.substr(std::min(line.find_first_not_of('#'), line.size())));
    if (words.empty() && !text.empty()) break;
    text += (text.empty() ? "" : " ") + words;
    if (const size_t end = text.find(". "); end != std::string::npos || text.ends_with('.')) {
      text.resize(std::min(end, text.size() - 1) + 1);
      break;
    }
  }
  return printable(text, 300);
}

std::string about_table(const TableFolder& table) {
  if (auto text = first_sentence(table.path / kPaper); !text.empty()) return text;
  const auto loaded = load_table(table.path, table.name);
  std::vector<std::string> titles;
  for (const auto& [name, title] : loaded.tests) titles.push_back(title);
  return fmt::format("{} rows on {}", loaded.rows.size(), fmt::join(titles, ", "));
}

std::string about_recipe(const fs::path& file) {
  if (auto text = first_sentence(file); !text.empty()) return text;
  const auto recipe = load_recipe(file);
  const auto method = recipe.settings.find("method");
  return method == recipe.settings.end() ? "" : "method " + method->second;
}

}  // namespace

PaperTable load_table(const fs::path& folder, const std::string& name) try {
  const fs::path file = folder / kPaper;
  const auto text = read_text(file);
  TORCH_CHECK(text, "cannot read '", file.string(), "'");
  PaperCsv csv;
  try {
    csv = parse_paper_csv(*text);
  } catch (const Malformed& malformed) {
    TORCH_CHECK(false, "'", file.string(), "' ", malformed.reason);
  }
  PaperTable table{name, std::move(csv.tests), {}};
  for (auto& row : csv.rows) {
    auto recipe = recipe_of_row(row, folder, fmt::format("'{}' line {}", file.string(), row.line));
    table.rows.push_back(
        {std::move(row.label), std::move(row.variant), std::move(recipe), std::move(row.numbers)});
  }
  return table;
} catch (...) {
  rethrow_from("load_table");
}

std::vector<TableFolder> tables_below(const fs::path& path, const std::string& name) {
  if (fs::is_regular_file(path / kPaper)) return {{name, path}};
  std::vector<fs::path> folders;
  for (const auto& entry : entries_of(path)) {
    if (is_folder(entry)) folders.push_back(entry);
  }
  std::sort(folders.begin(), folders.end());
  std::vector<TableFolder> tables;
  for (const auto& folder : folders) {
    const auto below = folder.filename().string();
    for (auto& table : tables_below(folder, name.empty() ? below : name + "/" + below))
      tables.push_back(std::move(table));
  }
  return tables;
}

std::vector<TableFolder> find_tables(const std::vector<std::string>& names,
                                     const std::vector<fs::path>& roots) try {
  std::vector<TableFolder> found;
  for (const auto& name : names) {
    std::vector<TableFolder> tables;
    if (is_folder(name)) {
      auto path = fs::absolute(name).lexically_normal();
      if (path.filename().empty()) path = path.parent_path();
      tables = tables_below(path, path.filename().string());
    }
    for (const auto& root : roots) {
      if (!tables.empty()) break;
      if (is_folder(root / "tables" / name)) tables = tables_below(root / "tables" / name, name);
    }
    if (tables.empty()) {
      std::vector<std::string> known;
      for (const auto& root : roots) {
        if (!is_folder(root / "tables")) continue;
        for (const auto& table : tables_below(root / "tables", "")) known.push_back(table.name);
      }
      const auto meant = did_you_mean(name, known);
      TORCH_CHECK(false, "no table '", printable(name), "'", meant,
                  known.empty()   ? "; no recipes were found; `recipes` says where they are"
                  : meant.empty() ? "; 'tpgm list recipes' has them all, and a folder needs a paper.csv"
                                  : " 'tpgm list recipes' has them all, and a folder needs a paper.csv");
    }
    for (auto& table : tables) {
      for (const auto& other : found)
        TORCH_CHECK(other.name != table.name, "two tables are called '", table.name, "'");
      found.push_back(std::move(table));
    }
  }
  return found;
} catch (...) {
  rethrow_from("find_tables");
}

std::vector<RecipeInfo> list_recipes(const fs::path& root) {
  std::vector<RecipeInfo> infos;
  if (is_folder(root / "tables")) {
    for (const auto& table : tables_below(root / "tables", ""))
      infos.push_back({table.name, about_table(table), table.path, true});
  }
  std::set<fs::path> files;
  for (auto at = fs::recursive_directory_iterator(root); at != fs::recursive_directory_iterator(); ++at) {
    if (at->path() == root / "tables") at.disable_recursion_pending();
    if (at->is_regular_file() && at->path().extension() == ".toml") files.insert(at->path());
  }
  for (const auto& file : files)
    infos.push_back({fs::relative(file, root).replace_extension().string(), about_recipe(file), file, false});
  return infos;
}

}  // namespace tpgm

// Reading paper.csv, and finding the folders that have one.
#include "tpgm/study/tables.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/folder.h"
#include "tpgm/study/sweep.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPaper = "paper.csv";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// Fields may be in quotes, which are doubled within them.
std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  for (auto& field : fields) field = trimmed(field);
  return fields;
}

std::optional<PaperNumber> parse_cell(const std::string& text, const std::string& where) {
  if (text.empty()) return std::nullopt;
  const size_t at = text.find('(');
  const auto mean = parse_number<double>(trimmed(text.substr(0, at)));
  std::optional<double> deviation;
  bool fine = mean.has_value();
  if (at != std::string::npos) {
    fine = fine && text.back() == ')';
    deviation = parse_number<double>(trimmed(text.substr(at + 1, text.size() - at - 2)));
    fine = fine && deviation.has_value();
  }
  TORCH_CHECK(fine, where, ": '", printable(text),
              "' is not a number; expected 80.93, 80.93 (0.08) or nothing");
  return PaperNumber{*mean, deviation};
}

// "tpgm:mu=0.1,norm=l2": the recipe tpgm.toml with these.
Recipe recipe_named(const std::string& variant, const fs::path& folder, const std::string& where) {
  const size_t colon = variant.find(':');
  const fs::path file = folder / (variant.substr(0, colon) + ".toml");
  if (!fs::is_regular_file(file)) {
    std::vector<std::string> stems;
    for (const auto& entry : entries_of(folder)) {
      if (entry.extension() == ".toml") stems.push_back(entry.stem().string());
    }
    TORCH_CHECK(false, where, ": no recipe '", printable(file.filename().string()), "'",
                did_you_mean(variant.substr(0, colon), stems));
  }
  Recipe recipe = load_recipe(file);
  if (colon == std::string::npos) return recipe;
  Settings other;
  std::vector<std::string> pairs;
  from_text(where, variant.substr(colon + 1), pairs);
  for (const auto& pair : pairs) {
    const size_t at = pair.find('=');
    TORCH_CHECK(at != std::string::npos && at > 0, where, ": '", printable(pair), "': expected KEY=VALUE");
    std::string key = pair.substr(0, at);
    std::replace(key.begin(), key.end(), '_', '-');
    other[key] = pair.substr(at + 1);
  }
  override_with(recipe, other);
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
    const auto words = trimmed(line.substr(std::min(line.find_first_not_of('#'), line.size())));
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
  std::ifstream stream(file);
  TORCH_CHECK(stream, "cannot read '", file.string(), "'");
  PaperTable table;
  table.name = name;
  int number = 0;
  bool header = true;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (trimmed(line).empty() || line.starts_with('#')) continue;
    const auto where = fmt::format("'{}' line {}", file.string(), number);
    const auto fields = csv_fields(line);
    if (header) {
      TORCH_CHECK(fields.size() >= 2 && fields[0] == "row" && fields[1] == "recipe", where,
                  ": expected row,recipe,TEST=TITLE,...");
      for (size_t i = 2; i < fields.size(); ++i) {
        const size_t at = fields[i].find('=');
        const auto test = fields[i].substr(0, at);
        TORCH_CHECK(!test.empty() && std::none_of(table.tests.begin(), table.tests.end(),
                                                  [&](const auto& other) { return other.first == test; }),
                    where, ": a test without a name, or there twice");
        table.tests.emplace_back(test, at == std::string::npos ? test : fields[i].substr(at + 1));
      }
      header = false;
      continue;
    }
    TORCH_CHECK(fields.size() == table.tests.size() + 2, where, ": ", fields.size(), " fields under ",
                table.tests.size() + 2,
                " columns; put a recipe with several options in quotes: \"tpgm:mu=0.1,norm=l2\"");
    TORCH_CHECK(!fields[0].empty() && !fields[1].empty(), where, ": a row needs a label and a recipe");
    PaperRow row{fields[0], fields[1], recipe_named(fields[1], folder, where), {}};
    for (size_t i = 2; i < fields.size(); ++i) row.numbers.push_back(parse_cell(fields[i], where));
    table.rows.push_back(std::move(row));
  }
  TORCH_CHECK(!stream.bad(), "cannot read '", file.string(), "'");
  TORCH_CHECK(!table.rows.empty(), "'", file.string(), "' has no rows");
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

// Recipes as text: flat TOML.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

struct TomlItem {
  std::string key;
  std::vector<std::string> values;  ///< one, or those of a list
};

/// Comments, and key = value on a line, where a value is a string, a number, a word or a list of them (over
/// lines, if it is long). Values are given as text. Sections, dotted keys, multi-line strings and dates are
/// not part of it. Throws Malformed, with the line, for what is not understood, and for keys that are said
/// twice, be it with '_' or with '-'.
std::vector<TomlItem> parse_toml(std::string_view text);
/// The same of a file; throws c10::Error with its name.
std::vector<TomlItem> read_toml(const std::filesystem::path& file);

/// As a string that parse_toml reads, in quotes.
std::string toml_quoted(const std::string& text);

}  // namespace tpgm

// Parses flat TOML, the format of recipes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

struct TomlItem {
  std::string key;
  std::vector<std::string> values;  ///< one value, or the values of a list
};

/// Reads comments and lines `key = value`, where a value is a string, a number, a boolean or a list of them,
/// which may span lines. Returns values as text. Sections, dotted keys, multi-line strings and dates are not
/// supported. Throws Malformed, with the line number, for other text and for duplicate keys ('_' and '-' are
/// the same).
std::vector<TomlItem> parse_toml(std::string_view text);
/// The same for a file; errors are c10::Error with its name.
std::vector<TomlItem> read_toml(const std::filesystem::path& file);

/// The text as a quoted TOML string.
std::string toml_quoted(const std::string& text);

}  // namespace tpgm

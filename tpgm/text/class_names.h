// Reads class names and templates (sentences with a place for the name) from files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// Where the name of a class goes in a template.
inline constexpr std::string_view kPlaceholder = "{}";

/// One class a line; or JSON: a list of names, or an object from folder or number to name, in the order that
/// image folders are read in (numbers as numbers, others by name), where a name may also be the last of a
/// list, as in ImageNet's class index; or a folder of class folders, whose names have '_' for ' '. Throws for
/// an empty name, with its line.
std::vector<std::string> load_class_names(const std::filesystem::path& path);

/// One template a line, each with "{}" where the name goes. Throws for one without, and if there is none.
std::vector<std::string> load_templates(const std::filesystem::path& path);

/// The same from the text of a file. They throw Malformed.
std::vector<std::string> parse_class_names(std::string_view text);
std::vector<std::string> parse_templates(std::string_view text);

}  // namespace tpgm

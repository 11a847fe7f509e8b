// Ordered lists of class names, and matching the classes of one data set to those of another.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tpgm/data/samples.h"

namespace tpgm {

/// Reads one name per line; of a folder it takes the names of its class folders. Throws c10::Error.
std::vector<std::string> load_class_list(const std::filesystem::path& path);

/// The names in the text of such a file. Throws Malformed.
std::vector<std::string> parse_class_list(std::string_view text);

/// Writes a file that load_class_list() reads.
void save_class_list(const std::vector<std::string>& names, const std::filesystem::path& path);

/// The names in classes.txt or classnames.txt in the folder of `file`; empty if there is neither.
std::vector<std::string> class_list_beside(const std::filesystem::path& file);

/// Throws, naming `where`, if a name occurs twice.
void check_different(const std::vector<std::string>& names, const std::string& where);

/// Changes the labels of `samples` to positions in `classes`, which it matches by name, such as the 200
/// folders of ImageNet-R among the 1000 of ImageNet. If all classes of `samples` are numbers and `classes`
/// are not, as the folders of ImageNet-V2, the numbers are positions. Throws c10::Error for a class that is
/// not in `classes`.
void match_classes(Samples& samples, const std::vector<std::string>& classes);

}  // namespace tpgm

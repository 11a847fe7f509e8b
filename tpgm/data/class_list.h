// Class names in order, and how the classes of one data set are found among those of another.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/data/samples.h"

namespace tpgm {

/// Names, one a line; of a folder, its class folders. Throws c10::Error.
std::vector<std::string> load_class_list(const std::filesystem::path& path);

/// What load_class_list reads.
void save_class_list(const std::vector<std::string>& names, const std::filesystem::path& path);

/// classes.txt or classnames.txt in the folder of `file`, or nothing.
std::vector<std::string> class_list_beside(const std::filesystem::path& file);

/// Throws, naming `where`, if a name occurs twice.
void check_different(std::vector<std::string> names, const std::string& where);

/// Labels of `samples` become those of `classes`, matched by name: ImageNet-R's 200 folders among ImageNet's
/// 1000. Classes that are all numbers, where `classes` are not, are positions: ImageNet-V2's folders. Throws
/// c10::Error for a class that is not there.
void match_classes(Samples& samples, const std::vector<std::string>& classes);

}  // namespace tpgm

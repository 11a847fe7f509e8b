// List files, "path label" a line, as DomainNet ships them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tpgm/data/samples.h"

namespace tpgm {

/// Labels are numbers from 0. A class is named after the folder its images lie in, if each label has one
/// folder and each folder one label, and otherwise after its number. Paths may hold spaces; they are relative
/// to the list's folder, or to the folder above it, where one of the first hundred
/// images is. A million lines take a fraction of a second: no other image is looked for.
Samples read_image_list(const std::filesystem::path& list);

/// The lines of a list; `root` is what its paths are relative to. Throws Malformed.
Samples parse_image_list(std::string_view text, const std::filesystem::path& root);

/// One of `samples`, all in files, per index, with absolute paths.
void write_image_list(const Samples& samples, const std::vector<int64_t>& indices,
                      const std::filesystem::path& list);

/// Whether its first line is the path of an image and a label.
bool is_image_list(const std::filesystem::path& file);

}  // namespace tpgm

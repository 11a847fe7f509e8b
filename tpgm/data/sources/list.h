// Reads and writes list files with one "path label" per line, as DomainNet has them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tpgm/data/formats/format.h"
#include "tpgm/data/samples.h"

namespace tpgm {

/// Labels are numbers from 0. A class is named after the folder of its images if each label has one folder
/// and each folder one label, and else after its number. Paths may contain spaces. They are relative to the
/// folder of the list, or to the folder above it: whichever has one of the first hundred images. Whether the
/// other images exist is not checked, so a million lines take a fraction of a second.
///
/// Adds to `unread` the files with the suffix of another format, which are not opened for that. They are among
/// the samples, and reading one is an error unless its content is of a format that is read.
Samples read_image_list(const std::filesystem::path& list, UnreadFiles* unread = nullptr);

/// Reads the text of a list, whose paths are relative to `root`. Throws Malformed.
Samples parse_image_list(std::string_view text, const std::filesystem::path& root);

/// Writes a list of the images at `indices`, with absolute paths. The samples must be files, not shards.
void write_image_list(const Samples& samples, const std::vector<int64_t>& indices,
                      const std::filesystem::path& list);

/// Whether the first line of the file is the path of an image and a label.
bool is_image_list(const std::filesystem::path& file);

}  // namespace tpgm

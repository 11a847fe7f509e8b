// Class folders: ImageNet, its relatives, PACS, Office-Home, and most people's own.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tpgm/data/samples.h"

namespace tpgm {

/// What lies below a folder that is not read, for a note: endings with how many files, "webp" with 12.
using Unread = std::map<std::string, int64_t>;

/// A folder that holds pictures is a class, with all that is below it; the folders between it and `folder`
/// name the part ("train", "real/train"). So folder/CLASS/x.jpg, folder/PART/CLASS/x.jpg and
/// folder/DOMAIN/SPLIT/CLASS/x.jpg are all read. Pictures in `folder` itself are one part without labels, if
/// there is no class. Hidden files and folders are left out; links are followed. Each part has its own
/// classes, sorted, and its pictures are in the order of their paths.
std::vector<Samples> read_image_folder(const std::filesystem::path& folder, Unread* unread = nullptr);

}  // namespace tpgm

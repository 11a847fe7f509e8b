// Class folders: ImageNet, its relatives, PACS, Office-Home, and most people's own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/data/samples.h"

namespace tpgm {

/// The innermost folders that hold images are classes; the folders between them and `folder` name the part
/// ("train", "real/train"). So folder/CLASS/x.jpg, folder/PART/CLASS/x.jpg and
/// folder/DOMAIN/SPLIT/CLASS/x.jpg are all read. Images in `folder` itself are one part without labels, if
/// there is no class. Hidden files and folders are left out; links are followed. Each part has its own
/// classes, sorted, and its images are in the order of their paths.
///
/// `notes`: what was left out, for the user to read. Throws c10::Error for a folder that cannot be read, and
/// for one among class folders that holds no image: with or without it, the classes would be numbered
/// otherwise.
std::vector<Samples> read_image_folder(const std::filesystem::path& folder,
                                       std::vector<std::string>* notes = nullptr);

}  // namespace tpgm

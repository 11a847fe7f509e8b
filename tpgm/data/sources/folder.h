// Reads folders with one folder per class, as of ImageNet and its variants, PACS and Office-Home.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/data/formats/format.h"
#include "tpgm/data/samples.h"

namespace tpgm {

/// The innermost folders with images are classes, and the folders between them and `folder` name the part
/// ("train", "real/train"): folder/CLASS/x.jpg, folder/PART/CLASS/x.jpg and folder/DOMAIN/SPLIT/CLASS/x.jpg
/// are all read. If there are no class folders, images in `folder` itself are one part without labels. Hidden
/// files and folders are left out, and links are followed. Each part has its own sorted classes, and its
/// images are sorted by path.
///
/// `notes` receive what was left out, and `unread` the images of other formats. Throws c10::Error for a folder
/// that cannot be read, and for a folder without images among class folders, because it would change the
/// numbers of the classes after it.
std::vector<Samples> read_image_folder(const std::filesystem::path& folder,
                                       std::vector<std::string>* notes = nullptr,
                                       UnreadFiles* unread = nullptr);

}  // namespace tpgm

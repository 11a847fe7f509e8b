// A walk over folders.
#include "tpgm/data/sources/folder.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <system_error>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/format.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 16;  // a link may lead back to where it is

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

struct Unread {
  int64_t count = 0;
  std::string first;
};

struct Listing {
  std::vector<std::string> images, folders;
};

class Walk {
 public:
  explicit Walk(fs::path root) : root_(std::move(root)) {}

  std::vector<Samples> run() {
    Listing top = list("");
    visit(top, "", 0);
    std::vector<Samples> result;
    for (const auto& [part, classes] : parts_) {
      if (const auto empty = empty_.find(part); empty != empty_.end()) {
        TORCH_CHECK(
            false, "[read_image_folder] '", printable((root_ / part / empty->second).string(), kMaxPath),
            "' is among class folders and holds no image (", format_suffixes(), "); fill it or take it away");
      }
      result.push_back(samples(part, classes));
    }
    if (result.empty() && !top.images.empty()) {
      auto& flat = result.emplace_back();
      flat.set_root(root_);
      for (const auto& name : top.images) flat.add(name, -1);
    }
    return result;
  }

  std::vector<std::string> notes() const {
    static const std::set<std::string> kImages{".webp", ".bmp", ".gif",  ".tif", ".tiff",
                                               ".ppm",  ".pgm", ".avif", ".jp2", ".heic"};
    std::vector<std::string> notes;
    Unread others;
    for (const auto& [ending, unread] : unread_) {
      if (kImages.contains(ending)) {
        notes.push_back(fmt::format("not read, as only {} are: {} {}, such as '{}'", format_names(),
                                    unread.count, ending, printable(unread.first, kMaxPath)));
      } else {
        if (others.count == 0) others.first = unread.first;
        others.count += unread.count;
      }
    }
    if (others.count > 0) {
      notes.push_back(fmt::format("left out, as no images: {}, such as '{}'", others.count,
                                  printable(others.first, kMaxPath)));
    }
    if (beside_ > 0) {
      notes.push_back(fmt::format("left out, as they lie beside folders of images: {}, such as '{}'", beside_,
                                  printable(first_beside_, kMaxPath)));
    }
    return notes;
  }

 private:
  using Classes = std::map<std::string, std::vector<std::string>>;  // with paths from the root

  Listing list(const std::string& folder) {
    Listing listing;
    std::error_code error;
    fs::directory_iterator entries(root_ / folder, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string name = entries->path().filename().string();
      if (name.starts_with('.') || name == "__MACOSX") continue;
      std::error_code ignored;
      if (is_image_name(name)) {
        listing.images.push_back(name);
      } else if (entries->is_directory(ignored)) {
        listing.folders.push_back(name);
      } else {
        auto& unread = unread_[lower(entries->path().extension().string())];
        if (unread.count++ == 0) unread.first = entries->path().string();
      }
    }
    TORCH_CHECK(!error, "[read_image_folder] cannot read the folder '",
                printable((root_ / folder).string(), kMaxPath), "': ", error.message());
    std::sort(listing.images.begin(), listing.images.end());
    std::sort(listing.folders.begin(), listing.folders.end());
    return listing;
  }

  // Whether an image is in or below `folder`, whose content is `here`.
  bool visit(const Listing& here, const std::string& folder, int depth) {
    TORCH_CHECK(depth <= kDeepest, "[read_image_folder] '", printable((root_ / folder).string(), kMaxPath),
                "' is ", depth, " folders deep: does a link lead in a circle?");
    bool below = false;
    for (const auto& name : here.folders) {
      const std::string path = folder.empty() ? name : folder + "/" + name;
      if (visit(list(path), path, depth + 1)) {
        below = true;
      } else {
        empty_.emplace(folder, name);
      }
    }
    if (here.images.empty()) return below;
    if (below) {
      if (beside_ == 0) first_beside_ = (root_ / folder / here.images.front()).string();
      beside_ += static_cast<int64_t>(here.images.size());
    } else if (!folder.empty()) {
      const fs::path path(folder);
      auto& paths = parts_[path.parent_path().string()][path.filename().string()];
      for (const auto& name : here.images) paths.push_back(folder + "/" + name);
    }
    return true;
  }

  Samples samples(const std::string& part, const Classes& classes) const {
    Samples result;
    set_part(result, part);
    result.set_root(root_);
    for (const auto& each : classes) result.classes.push_back(each.first);
    sort_classes(result.classes);
    for (size_t label = 0; label < result.classes.size(); ++label) {
      for (const auto& path : classes.at(result.classes[label]))
        result.add(path, static_cast<int64_t>(label));
    }
    return result;
  }

  fs::path root_;
  std::map<std::string, Classes> parts_;
  std::map<std::string, std::string> empty_;  // folder with one in it that has no images
  std::map<std::string, Unread> unread_;      // files by their ending
  int64_t beside_ = 0;
  std::string first_beside_;
};

}  // namespace

std::vector<Samples> read_image_folder(const fs::path& folder, std::vector<std::string>* notes) {
  Walk walk(folder);
  auto parts = walk.run();
  if (notes != nullptr) *notes = walk.notes();
  return parts;
}

}  // namespace tpgm

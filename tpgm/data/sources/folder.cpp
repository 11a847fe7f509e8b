// A walk over folders.
#include "tpgm/data/sources/folder.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/format.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 16;  // a link may lead back to where it is

// Files that are left out, with an example.
struct LeftOut {
  int64_t count = 0;
  std::string first;

  void add(int64_t files, const std::string& path) {
    if (count == 0 || path < first) first = path;
    count += files;
  }
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

  const UnreadFiles& unread() const { return unread_; }
  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    const auto note = [&](const char* why, const LeftOut& files) {
      if (files.count > 0)
        notes.push_back(fmt::format("left out, as {}: {}, such as '{}'", why, files.count,
                                    printable(files.first, kMaxPath)));
    };
    note("no images", others_);
    note("they lie beside folders of images", beside_);
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
      } else if (const auto suffix = unread_suffix(name); !suffix.empty()) {
        ++unread_[suffix];
      } else {
        others_.add(1, entries->path().string());
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
      beside_.add(static_cast<int64_t>(here.images.size()), (root_ / folder / here.images.front()).string());
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
  UnreadFiles unread_;
  LeftOut others_, beside_;
};

}  // namespace

std::vector<Samples> read_image_folder(const fs::path& folder, std::vector<std::string>* notes,
                                       UnreadFiles* unread) {
  Walk walk(folder);
  auto parts = walk.run();
  if (notes != nullptr) *notes = walk.notes();
  if (unread != nullptr) *unread = walk.unread();
  return parts;
}

}  // namespace tpgm

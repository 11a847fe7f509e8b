// A walk over folders.
#include "tpgm/data/image_folder.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <system_error>

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 16;  // a link may lead back to where it is

struct Listing {
  std::vector<std::string> pictures, folders;
};

Listing list(const fs::path& folder, Unread& unread) {
  Listing listing;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (name.starts_with('.') || name == "__MACOSX") continue;
    std::error_code ignored;
    if (is_picture(name)) {
      listing.pictures.push_back(name);
    } else if (entries->is_directory(ignored)) {
      listing.folders.push_back(name);
    } else {
      ++unread[entries->path().extension().string()];
    }
  }
  TORCH_CHECK(!error, "[read_image_folder] cannot read the folder '", folder.string(),
              "': ", error.message());
  std::sort(listing.pictures.begin(), listing.pictures.end());
  std::sort(listing.folders.begin(), listing.folders.end());
  return listing;
}

class Walk {
 public:
  Walk(fs::path root, Unread& unread) : root_(std::move(root)), unread_(unread) {}

  std::vector<Samples> run() {
    const Listing top = list(root_, unread_);
    for (const auto& name : top.folders) visit(name, 1);
    std::vector<Samples> result;
    for (const auto& [part, classes] : parts_) result.push_back(samples(part, classes));
    if (result.empty() && !top.pictures.empty()) {
      auto& flat = result.emplace_back();
      flat.set_root(root_);
      for (const auto& name : top.pictures) flat.add(name, -1);
    }
    return result;
  }

 private:
  using Classes = std::map<std::string, std::vector<std::string>>;  // with paths from the root

  void visit(const std::string& folder, int depth) {
    TORCH_CHECK(depth <= kDeepest, "[read_image_folder] '", (root_ / folder).string(), "' is ", depth,
                " folders deep: does a link lead in a circle?");
    const Listing here = list(root_ / folder, unread_);
    if (here.pictures.empty()) {
      for (const auto& name : here.folders) visit(folder + "/" + name, depth + 1);
      return;
    }
    const fs::path path(folder);
    collect(folder, here, depth, parts_[path.parent_path().string()][path.filename().string()]);
  }

  void collect(const std::string& folder, const Listing& here, int depth, std::vector<std::string>& paths) {
    TORCH_CHECK(depth <= kDeepest, "[read_image_folder] '", (root_ / folder).string(), "' is ", depth,
                " folders deep: does a link lead in a circle?");
    for (const auto& name : here.pictures) paths.push_back(folder + "/" + name);
    for (const auto& name : here.folders) {
      const std::string below = folder + "/" + name;
      collect(below, list(root_ / below, unread_), depth + 1, paths);
    }
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
  Unread& unread_;
  std::map<std::string, Classes> parts_;
};

}  // namespace

std::vector<Samples> read_image_folder(const fs::path& folder, Unread* unread) {
  Unread local;
  return Walk(folder, unread != nullptr ? *unread : local).run();
}

}  // namespace tpgm

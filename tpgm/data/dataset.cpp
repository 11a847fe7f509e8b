// What kind of data set lies somewhere, and its classes.
#include "tpgm/data/dataset.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "tpgm/core/names.h"
#include "tpgm/data/class_list.h"
#include "tpgm/data/image_folder.h"
#include "tpgm/data/image_list.h"
#include "tpgm/data/tar_shards.h"
#include "tpgm/io/untrusted.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

struct Found {
  std::vector<Samples> parts;
  bool lists = false;                // each with classes of its own by position, which have to be joined
  std::vector<std::string> classes;  // of classes.txt
  std::vector<std::string> notes;
};

Found from_lists(const std::vector<fs::path>& lists) {
  Found found;
  found.lists = true;
  for (const auto& list : lists) found.parts.push_back(read_image_list(list));
  found.classes = class_list_beside(lists.front());
  return found;
}

Found from_shards(const std::vector<fs::path>& shards) {
  Found found;
  found.parts = read_tar_shards(shards);
  found.classes = found.parts.front().classes;
  return found;
}

Found from_folders(const fs::path& folder) {
  Found found;
  Unread unread;
  found.parts = read_image_folder(folder, &unread);
  int64_t others = 0;
  for (const auto& [ending, count] : unread) {
    static const std::set<std::string> kPictures{".webp", ".bmp", ".gif",  ".tif", ".tiff",
                                                 ".ppm",  ".pgm", ".avif", ".jp2", ".heic"};
    std::string lower = ending;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    if (kPictures.contains(lower)) {
      found.notes.push_back(fmt::format("{} files {} are not read; only JPEG and PNG are", count, ending));
    } else {
      others += count;
    }
  }
  if (others > 0) found.notes.push_back(fmt::format("{} other files were left out", others));
  return found;
}

Found from_folder(const fs::path& folder) {
  std::vector<fs::path> tars, lists;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    std::error_code ignored;
    if (name.starts_with('.') || !entry.is_regular_file(ignored)) continue;
    if (path.extension() == ".tar") tars.push_back(path);
    const bool is_class_list = name == "classes.txt" || name == "classnames.txt";
    if (path.extension() == ".txt" && !is_class_list && is_image_list(path)) lists.push_back(path);
  }
  std::sort(tars.begin(), tars.end());
  std::sort(lists.begin(), lists.end());
  if (!tars.empty()) return from_shards(tars);
  return lists.empty() ? from_folders(folder) : from_lists(lists);
}

Found look(const std::string& where) {
  std::error_code ignored;
  if (where.find('{') != std::string::npos && !fs::exists(where, ignored))
    return from_shards(expand_braces(where));
  TORCH_CHECK(fs::exists(where, ignored), "[Dataset] there is no '", where,
              "'; expected a folder of class folders, lists or shards, a list or a tar");
  try {
    if (fs::is_directory(where, ignored)) return from_folder(where);
  } catch (const fs::filesystem_error& error) {
    TORCH_CHECK(false, "[Dataset] cannot read the folder '", where, "': ", error.code().message());
  }
  const auto ending = fs::path(where).extension();
  return ending == ".tar" || ending == ".gz" || ending == ".tgz" ? from_shards({where}) : from_lists({where});
}

// Of parts whose labels are positions: the longest list, in which a name beats a number.
std::vector<std::string> join_positions(const std::vector<Samples>& parts) {
  std::vector<std::string> classes;
  for (const auto& part : parts) {
    for (size_t i = 0; i < part.classes.size(); ++i) {
      const std::string& name = part.classes[i];
      if (i == classes.size()) classes.push_back(name);
      if (classes[i] == name || name == std::to_string(i)) continue;
      TORCH_CHECK(classes[i] == std::to_string(i), "[Dataset] class ", i, " is '", printable(classes[i]),
                  "' in one list and '", printable(name), "' in '", part.title(),
                  "'; lists of one data set must agree");
      classes[i] = name;
    }
  }
  return classes;
}

std::vector<std::string> join_names(const std::vector<Samples>& parts) {
  std::set<std::string> names;
  for (const auto& part : parts) names.insert(part.classes.begin(), part.classes.end());
  std::vector<std::string> classes(names.begin(), names.end());
  sort_classes(classes);
  return classes;
}

bool any_known(const Samples& part, const std::vector<std::string>& classes) {
  const std::set<std::string> known(classes.begin(), classes.end());
  return std::any_of(part.classes.begin(), part.classes.end(),
                     [&](const auto& name) { return known.contains(name); });
}

void use_positions(Samples& part, const std::vector<std::string>& classes) {
  TORCH_CHECK(part.classes.size() <= classes.size(), "[Dataset] '", part.title(), "' has ",
              part.classes.size(), " classes, more than the ", classes.size(), " it is matched with");
  part.classes = classes;
}

// A folder has no name to be called by if it is the data set itself.
void name_part(Samples& part, const std::string& where) {
  if (!part.title().empty()) return;
  const fs::path path = fs::absolute(where).lexically_normal();
  part.domain = (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

Dataset::Dataset(const std::string& where, const DatasetOptions& options) : where_(where) {
  Found found = look(where);
  TORCH_CHECK(!found.parts.empty(), "[Dataset] no picture (.jpg, .jpeg, .png) is below '", where, "'",
              found.notes.empty() ? "" : fmt::format(" ({})", fmt::join(found.notes, "; ")),
              "; expected class folders, lists of 'path label', or tars");
  notes_ = std::move(found.notes);
  classes_ = !found.classes.empty() ? found.classes
             : found.lists          ? join_positions(found.parts)
                                    : join_names(found.parts);
  std::set<std::string> titles;
  for (auto& part : found.parts) {
    name_part(part, where);
    TORCH_CHECK(titles.insert(part.title()).second, "[Dataset] '", where, "' has two parts that are both '",
                printable(part.title()), "'");
    if (found.lists) {
      use_positions(part, classes_);
    } else {
      match_classes(part, classes_, "Dataset");
    }
  }
  if (!options.classes().empty()) {
    check_different(options.classes(), "Dataset", "the list of classes");
    for (auto& part : found.parts) {
      // Numbers go by position only where no name says otherwise.
      if (part.numbered && !any_known(part, options.classes())) {
        use_positions(part, options.classes());
      } else {
        match_classes(part, options.classes(), "Dataset");
      }
    }
    classes_ = options.classes();
  }
  for (auto& part : found.parts) parts_.push_back(std::make_shared<const Samples>(std::move(part)));
}

Dataset::Part Dataset::find(const std::string& domain, const std::string& split) const {
  for (const auto& part : parts_) {
    if (part->domain == domain && part->split == split) return part;
  }
  return nullptr;
}

Dataset::Part Dataset::part(const std::string& name, Role role) const {
  for (const auto& part : parts_) {
    if (part->title() == name) return part;
  }
  std::vector<Part> of_domain;
  std::copy_if(parts_.begin(), parts_.end(), std::back_inserter(of_domain),
               [&](const Part& part) { return part->domain == name; });
  if (of_domain.size() == 1) return of_domain.front();
  const auto splits = role == Role::kTrain ? std::vector<std::string>{"train"}
                                           : std::vector<std::string>{"test", "val", "validation"};
  for (const auto& split : splits) {
    if (auto part = find(name, split)) return part;
  }
  std::vector<std::string> known = titles();
  for (const auto& part : parts_) {
    if (!part->domain.empty()) known.push_back(part->domain);
  }
  TORCH_CHECK(false, "[Dataset] '", where_, "' has no '", name, "'",
              role == Role::kTrain ? " to train on" : " to test on", "; it has ",
              fmt::format("{}", fmt::join(titles(), ", ")), ". Did you mean '", nearest(name, known), "'?");
}

std::vector<std::string> Dataset::titles() const {
  std::vector<std::string> titles;
  for (const auto& part : parts_) titles.push_back(part->title());
  return titles;
}

}  // namespace tpgm

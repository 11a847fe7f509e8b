// Recognizes the type of a data set, and joins the classes of its parts.
#include "tpgm/data/dataset.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/class_list.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/data/sources/braces.h"
#include "tpgm/data/sources/folder.h"
#include "tpgm/data/sources/list.h"
#include "tpgm/data/sources/tar.h"

namespace tpgm {

struct FoundParts {
  std::vector<Samples> parts;
  bool lists = false;                // parts are lists: their classes are positions, and have to be joined
  std::vector<std::string> classes;  // of classes.txt
  std::vector<std::string> notes;
  UnreadFiles unread;
};

namespace {

namespace fs = std::filesystem;
using Found = FoundParts;

Found from_lists(const std::vector<fs::path>& lists) {
  Found found;
  found.lists = true;
  for (const auto& list : lists) found.parts.push_back(read_image_list(list, &found.unread));
  found.classes = class_list_beside(lists.front());
  return found;
}

Found from_shards(const std::vector<fs::path>& shards) {
  Found found;
  found.parts = read_tar_shards(shards, &found.unread);
  found.classes = found.parts.front().classes;
  return found;
}

Found from_folders(const fs::path& folder) {
  Found found;
  found.parts = read_image_folder(folder, &found.notes, &found.unread);
  return found;
}

Found from_folder(const fs::path& folder) {
  std::vector<fs::path> tars, lists;
  int64_t folders = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    std::error_code ignored;
    if (name.starts_with('.')) continue;
    if (entry.is_directory(ignored)) ++folders;
    if (!entry.is_regular_file(ignored)) continue;
    if (path.extension() == ".tar") tars.push_back(path);
    const bool is_class_list = name == "classes.txt" || name == "classnames.txt";
    if (path.extension() != ".txt" || is_class_list) continue;
    // A file called real_train.txt is meant to be a list: it is read even if its first line is wrong, so that
    // the error names the line.
    Samples named;
    set_part_of_file(named, path.stem().string());
    if (is_image_list(path) || !named.split.empty()) lists.push_back(path);
  }
  std::sort(tars.begin(), tars.end());
  std::sort(lists.begin(), lists.end());
  if (tars.empty()) return lists.empty() ? from_folders(folder) : from_lists(lists);
  Found found = from_shards(tars);
  if (lists.empty() && folders == 0) return found;
  const std::string first = printable(tars.front().filename().string());
  if (found.classes.empty() && folders > 0) {  // an archive beside the folders unpacked from it
    Found unpacked = lists.empty() ? from_folders(folder) : from_lists(lists);
    unpacked.notes.insert(unpacked.notes.begin(),
                          fmt::format("not read, as they have no labels: {}, such as '{}'",
                                      counted(static_cast<int64_t>(tars.size()), "tar"), first));
    return unpacked;
  }
  found.notes.push_back(
      fmt::format("read are its tars ({}, such as '{}'), and not what is beside them: {}, {}", tars.size(),
                  first, counted(static_cast<int64_t>(lists.size()), "list"), counted(folders, "folder")));
  return found;
}

// A single image.
Found from_image(const fs::path& file) {
  Found found;
  auto& part = found.parts.emplace_back();
  part.domain = file.stem().string();
  part.set_root(file.parent_path());
  part.add(file.filename().string(), -1);
  return found;
}

Found find_parts(const std::string& where) {
  std::error_code ignored;
  if (where.find('{') != std::string::npos && !fs::exists(where, ignored))
    return from_shards(expand_braces(where));
  TORCH_CHECK(fs::exists(where, ignored), "there is no '", where,
              "'; expected a folder of class folders, lists or shards, a list or a tar");
  try {
    if (fs::is_directory(where, ignored)) return from_folder(where);
  } catch (const fs::filesystem_error& error) {
    TORCH_CHECK(false, "cannot read the folder '", where, "': ", error.code().message());
  }
  if (is_image_name(where)) return from_image(where);
  const auto ending = fs::path(where).extension();
  return ending == ".tar" || ending == ".gz" || ending == ".tgz" ? from_shards({where}) : from_lists({where});
}

// The classes of parts whose labels are positions: those of the longest part. A name takes precedence over a
// number.
std::vector<std::string> join_positions(const std::vector<Samples>& parts) {
  std::vector<std::string> classes;
  for (const auto& part : parts) {
    for (size_t i = 0; i < part.classes.size(); ++i) {
      const std::string& name = part.classes[i];
      if (i == classes.size()) classes.push_back(name);
      if (classes[i] == name || name == std::to_string(i)) continue;
      TORCH_CHECK(classes[i] == std::to_string(i), "class ", i, " is '", printable(classes[i]),
                  "' in one list and '", printable(name), "' in '", printable(part.title()),
                  "'; lists of one data set must agree");
      classes[i] = name;
    }
  }
  return classes;
}

// Parts whose classes are numbers add no classes if others have names: their numbers are positions
// (match_classes()).
std::vector<std::string> join_names(const std::vector<Samples>& parts) {
  std::set<std::string> names;
  for (const auto& part : parts) {
    if (!all_numbers(part.classes)) names.insert(part.classes.begin(), part.classes.end());
  }
  if (names.empty()) {
    for (const auto& part : parts) names.insert(part.classes.begin(), part.classes.end());
  }
  std::vector<std::string> classes(names.begin(), names.end());
  sort_classes(classes);
  return classes;
}

bool any_known(const Samples& part, const std::vector<std::string>& classes) {
  const std::set<std::string> known(classes.begin(), classes.end());
  return std::any_of(part.classes.begin(), part.classes.end(),
                     [&](const auto& name) { return known.contains(name); });
}

// The folders of a list's images and the list of classes beside it may give one label different names.
void check_names(const Samples& part, const std::vector<std::string>& classes) {
  std::map<std::string, size_t> listed;
  for (size_t i = 0; i < classes.size(); ++i) listed.emplace(classes[i], i);
  for (size_t i = 0; i < std::min(part.classes.size(), classes.size()); ++i) {
    const auto found = listed.find(part.classes[i]);
    TORCH_CHECK(found == listed.end() || found->second == i, "label ", i, " of '", printable(part.title()),
                "' is '", printable(part.classes[i]), "' by its folder and '", printable(classes[i]),
                "' by the list of classes");
  }
}

void use_positions(Samples& part, const std::vector<std::string>& classes) {
  TORCH_CHECK(part.classes.size() <= classes.size(), "'", printable(part.title()), "' has ",
              part.classes.size(), " classes, more than the ", classes.size(),
              " of the list it is matched with");
  part.classes = classes;
}

// A part that is the whole data set has no name yet: it takes that of its folder.
void name_part(Samples& part, const std::string& where) {
  if (!part.title().empty()) return;
  fs::path path = fs::absolute(where).lexically_normal();
  if (!path.has_filename() || path.extension() == ".tar")
    path = path.parent_path();  // "folder/", "{00..09}.tar"
  part.domain = path.filename().string();
}

}  // namespace

Dataset::Dataset(const std::string& where, const DatasetOptions& options)
    : Dataset(where, std::make_shared<const Found>(find_parts(where)), options.classes()) {}

Dataset::Dataset(std::string where, std::shared_ptr<const Found> found,
                 const std::vector<std::string>& classes) try
    : found_(std::move(found)), where_(std::move(where)), notes_(found_->notes) {
  std::vector<Samples> parts = found_->parts;
  std::vector<std::string> left_out = notes_;
  if (auto unread = unread_note(); !unread.empty()) left_out.insert(left_out.begin(), std::move(unread));
  TORCH_CHECK(!parts.empty(), "no image (", format_suffixes(), ") is below '", where_, "'",
              left_out.empty() ? "" : fmt::format(" ({})", fmt::join(left_out, "; ")),
              "; expected class folders, lists of 'path label', or tars");
  const bool given = !classes.empty();
  classes_ = given                      ? classes
             : !found_->classes.empty() ? found_->classes
             : found_->lists            ? join_positions(parts)
                                        : join_names(parts);
  check_different(classes_, given ? "the list of classes" : fmt::format("'{}'", where_));
  std::set<std::string> titles;
  for (auto& part : parts) {
    name_part(part, where_);
    TORCH_CHECK(titles.insert(part.title()).second, "'", where_, "' has two parts that are both '",
                printable(part.title()), "'");
    if (!given && found_->lists) {
      check_names(part, classes_);
      use_positions(part, classes_);
    } else if (given && part.numbered && !any_known(part, classes_)) {
      if (!all_numbers(part.classes)) {
        notes_.push_back(fmt::format(
            "labels of '{}' are taken as positions in the list of classes, which has none of its names",
            printable(part.title())));
      }
      use_positions(part, classes_);
    } else {
      match_classes(part, classes_);
    }
  }
  for (auto& part : parts) parts_.push_back(std::make_shared<const Samples>(std::move(part)));
} catch (...) {
  rethrow_from("Dataset");
}

const UnreadFiles& Dataset::unread() const { return found_->unread; }

std::string Dataset::unread_note() const { return unread_text(found_->unread, where_); }

Dataset Dataset::with_classes(const std::vector<std::string>& classes) const {
  return classes == classes_ ? *this : Dataset(where_, found_, classes);
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
  const auto meant = nearest(name, known);
  TORCH_CHECK(false, "[Dataset] '", where_, "' has no '", printable(name), "'; it has ",
              fmt::format("{}", fmt::join(titles(), ", ")),
              meant.empty() ? "" : ". Did you mean '" + printable(meant) + "'?");
}

std::vector<std::string> Dataset::titles() const {
  std::vector<std::string> titles;
  for (const auto& part : parts_) titles.push_back(part->title());
  return titles;
}

}  // namespace tpgm

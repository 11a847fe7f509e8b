// Lines of lists.
#include "tpgm/data/sources/list.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <unordered_set>

#include "tpgm/base/call.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpace = " \t\r";

struct Line {
  std::string_view path;
  int64_t label = -1;
};

// An empty path where there is nothing, a label of -1 where it is wrong.
Line parse_line(std::string_view line) {
  const size_t end = line.find_last_not_of(kSpace);
  if (end == std::string_view::npos) return {};
  line = line.substr(0, end + 1);
  Line result{line, -1};
  const size_t gap = line.find_last_of(kSpace);
  if (gap == std::string_view::npos) return result;
  result.label = parse_number<int64_t>(line.substr(gap + 1)).value_or(-1);
  const size_t path_end = line.find_last_not_of(kSpace, gap);
  const size_t begin = line.find_first_not_of(kSpace);
  if (path_end == std::string_view::npos) return {line, -1};
  result.path = line.substr(begin, path_end + 1 - begin);
  return result;
}

std::string_view folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {};
  const size_t before = path.substr(0, slash).rfind('/');
  return path.substr(before + 1, slash - before - 1);  // npos + 1 is 0
}

// The folder of each label, or nothing if they do not tell the classes apart.
std::vector<std::string> folder_names(const Samples& samples, size_t classes) {
  std::vector<std::string_view> names(classes);
  for (int64_t i = 0; i < samples.size(); ++i) {
    const std::string_view folder = folder_of(samples.name(i));
    auto& name = names[static_cast<size_t>(samples.label(i))];
    if (folder.empty() || (!name.empty() && name != folder)) return {};
    name = folder;
  }
  std::vector<std::string> result;
  result.reserve(classes);
  for (size_t label = 0; label < classes; ++label) {
    result.push_back(names[label].empty() ? std::to_string(label) : std::string(names[label]));
  }
  const std::unordered_set<std::string_view> different(result.begin(), result.end());
  return different.size() == classes ? result : std::vector<std::string>{};
}

// Some may be missing.
bool holds_any(const fs::path& root, const Samples& samples) {
  for (int64_t i = 0; i < std::min<int64_t>(samples.size(), 100); ++i) {
    std::error_code ignored;
    if (fs::exists(root / samples.name(i), ignored)) return true;
  }
  return false;
}

// By the suffix, without opening files. Only those that would count are looked for on the disk.
void add_unread(const Samples& samples, UnreadFiles& unread) {
  for (int64_t i = 0; i < samples.size(); ++i) {
    const std::string suffix = unread_suffix(samples.name(i));
    std::error_code ignored;
    if (!suffix.empty() && fs::is_regular_file(samples.place(i), ignored)) ++unread[suffix];
  }
}

}  // namespace

Samples parse_image_list(std::string_view text, const fs::path& root) {
  text = without_byte_order_mark(text);
  Samples samples;
  samples.numbered = true;
  samples.set_root(root);
  size_t number = 0;
  int64_t classes = 0;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view all = text.substr(at, end - at);
    at = end + 1;
    const Line line = parse_line(all);
    if (line.path.empty()) continue;
    if (line.label < 0 || line.label >= kMostClasses || line.path.find('\0') != std::string_view::npos) {
      throw Malformed{fmt::format("line {}: expected a path, a space and a label from 0 to {}, got '{}'",
                                  number + 1, kMostClasses - 1, printable(all)),
                      "correct the line"};
    }
    classes = std::max(classes, line.label + 1);
    samples.add(line.path, line.label);
  }
  if (samples.size() == 0) throw Malformed{"it is empty", "expected lines of a path, a space and a label"};
  samples.classes = folder_names(samples, static_cast<size_t>(classes));
  if (samples.classes.empty()) {
    for (int64_t label = 0; label < classes; ++label) samples.classes.push_back(std::to_string(label));
  }
  return samples;
}

Samples read_image_list(const fs::path& list, UnreadFiles* unread) try {
  const MappedFile file(list);
  try {
    fs::path root = list.parent_path();
    Samples samples = parse_image_list(file.bytes(), root);
    const fs::path above = fs::absolute(list).parent_path().parent_path();
    if (!holds_any(root, samples)) {
      if (!holds_any(above, samples)) {
        throw Malformed{
            fmt::format("its images, such as '{}', are neither in its folder nor in the one above",
                        printable(samples.name(0), kMaxPath)),
            "paths are relative to the list's folder"};
      }
      samples.set_root(above);
    }
    set_part_of_file(samples, list.stem().string());
    if (unread != nullptr) add_unread(samples, *unread);
    return samples;
  } catch (const Malformed& malformed) {
    refuse(list, malformed);
  }
} catch (...) {
  rethrow_from("read_image_list");
}

void write_image_list(const Samples& samples, const std::vector<int64_t>& indices, const fs::path& list) try {
  TORCH_CHECK(samples.in_files(), "'", samples.title(), "' lies in shards, and a list names files");
  std::string text;
  for (const int64_t i : indices) {
    TORCH_CHECK(samples.label(i) >= 0, "'", samples.place(i), "' has no label");
    const std::string place = fs::absolute(samples.place(i)).lexically_normal().string();
    TORCH_CHECK(place.find('\n') == std::string::npos, "a file's name holds a newline: '",
                printable(place, kMaxPath), "'");
    text += fmt::format("{} {}\n", place, samples.label(i));
  }
  write_file(list, text);
} catch (...) {
  rethrow_from("write_image_list");
}

bool is_image_list(const fs::path& file) {
  if (fs::is_directory(file)) return false;
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMaxPath + 64, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  TORCH_CHECK(!stream.bad(), "cannot read '", printable(file.string(), kMaxPath), "'");
  text.resize(static_cast<size_t>(stream.gcount()));
  const std::string_view first = without_byte_order_mark(text);
  const Line line = parse_line(first.substr(0, first.find('\n')));
  const bool image = is_image_name(line.path) || !unread_suffix(line.path).empty();
  return line.label >= 0 && image;  // "Version 2" is none
}

}  // namespace tpgm

// Samples of tars: keys, labels, parts.
#include "tpgm/data/sources/tar.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/error_text.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/class_list.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/io/file.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestLabel = 1 << 20;  // bytes of a .cls or .json

std::string trimmed(std::string text) {
  constexpr const char* kSpace = " \t\r\n";
  text.erase(text.find_last_not_of(kSpace) + 1);
  text.erase(0, text.find_first_not_of(kSpace));
  return text;
}

std::string json_label(const std::string& text, const std::string& name) {
  try {
    check_json_text(text, 0);
    const auto json = nlohmann::json::parse(text);
    for (const char* key : {"label", "cls", "class"}) {
      const auto found = json.find(key);
      if (found == json.end()) continue;
      if (found->is_number()) {
        const auto number = found->get<double>();
        require(std::abs(number) < 1e9 && number == std::floor(number), "'{}' has a label {}",
                printable(name), number);
        return std::to_string(static_cast<int64_t>(number));
      }
      if (found->is_string()) return trimmed(found->get<std::string>());
    }
  } catch (const nlohmann::json::exception& error) {
    throw Malformed{fmt::format("'{}' is not JSON: {}", printable(name), json_reason(error))};
  } catch (Malformed& malformed) {
    throw Malformed{fmt::format("'{}': {}", printable(name), malformed.reason), malformed.advice};
  }
  return "";  // captions and the like
}

// "real/train" of real_train-000004.tar.
std::string part_of(const fs::path& shard) {
  std::string stem = shard.stem().string();
  const size_t digits = stem.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  const bool separate = digits == 0 || stem[digits - 1] == '-' || stem[digits - 1] == '_';
  if (separate && digits < stem.size()) stem.resize(digits == 0 ? 0 : digits - 1);  // "site2.tar" is its own
  Samples named;
  set_part_of_file(named, stem);
  return named.title();
}

struct Collected {
  struct Entry {
    ShardSample sample;
    uint32_t shard;
  };
  std::map<std::string, std::vector<Entry>> parts;
  std::set<std::string> labels;
  int64_t labelled = 0, total = 0;
};

// .cls and .json hold positions if all are numbers.
bool are_positions(const std::set<std::string>& labels, const fs::path& first) {
  const auto is_number = [](const auto& label) { return parse_number<int64_t>(label).has_value(); };
  if (!std::all_of(labels.begin(), labels.end(), is_number)) return false;
  for (const auto& label : labels) {
    const int64_t number = *parse_number<int64_t>(label);
    TORCH_CHECK(number >= 0 && number < kMostClasses, "'", first.string(),
                "' and its neighbors have a label ", number, "; expected 0 to ", kMostClasses - 1);
  }
  return true;
}

// The number of each label; fills in `classes` if no file has listed them.
std::map<std::string, int32_t> class_numbers(const std::set<std::string>& labels, bool positions,
                                             std::vector<std::string>& classes, const fs::path& first) {
  std::map<std::string, int32_t> numbers;
  if (positions) {
    int32_t count = 0;
    for (const auto& label : labels) {
      numbers[label] = static_cast<int32_t>(*parse_number<int64_t>(label));
      count = std::max(count, numbers[label] + 1);
    }
    if (classes.empty()) {
      for (int32_t i = 0; i < count; ++i) classes.push_back(std::to_string(i));
    }
    TORCH_CHECK(count <= static_cast<int32_t>(classes.size()), "'", first.string(),
                "' and its neighbors have a label ", count - 1, ", but their list of classes has ",
                classes.size());
    return numbers;
  }
  if (classes.empty()) {
    classes.assign(labels.begin(), labels.end());
    sort_classes(classes);
  }
  TORCH_CHECK(static_cast<int64_t>(classes.size()) <= kMostClasses, "'", first.string(),
              "' and its neighbors have ", classes.size(), " different labels; are they captions?");
  std::map<std::string, int32_t> positions_of;
  for (size_t i = 0; i < classes.size(); ++i) positions_of.emplace(classes[i], static_cast<int32_t>(i));
  for (const auto& label : labels) {
    const auto found = positions_of.find(label);
    TORCH_CHECK(found != positions_of.end(), "'", first.string(), "' and its neighbors have a label '",
                printable(label), "' that is neither a number nor in their list of classes");
    numbers.insert(*found);
  }
  return numbers;
}

// As in folders.
bool is_hidden(const std::string& name) {
  return name.starts_with('.') || name.find("/.") != std::string::npos || name.starts_with("__MACOSX/");
}

}  // namespace

std::vector<ShardSample> index_shard(TarReader& tar, UnreadFiles* unread) {
  std::vector<ShardSample> samples;
  ShardSample current;
  const auto flush = [&] {
    if (!current.encoded.empty()) samples.push_back(std::move(current));
    current = {};
  };
  while (auto entry = tar.next()) {
    std::string name = std::move(entry->name);
    while (name.starts_with("./")) name.erase(0, 2);
    while (name.starts_with('/')) name.erase(0, 1);
    if (is_hidden(name)) continue;
    const size_t slash = name.rfind('/');
    const size_t base = slash == std::string::npos ? 0 : slash + 1;
    const std::string key = name.substr(0, name.find('.', base));
    // A class folder may have img.1.jpg and img.2.jpg. Among labeled samples the second lacks a label.
    if (key != current.key || (is_image_name(name) && !current.encoded.empty())) {
      flush();
      current.key = key;
    }
    if (is_image_name(name)) {
      require(entry->size <= UINT32_MAX, "'{}' has {} bytes", printable(name), entry->size);
      current.encoded = name;
      current.offset = entry->offset;
      current.size = entry->size;
    } else if (name.ends_with(".cls") || name.ends_with(".json")) {
      require(entry->size <= kLargestLabel, "'{}' has {} bytes", printable(name), entry->size);
      const std::string text = tar.bytes(*entry);
      const std::string label = name.ends_with(".cls") ? trimmed(text) : json_label(text, name);
      if (!label.empty()) current.label = label;
    } else if (const auto suffix = unread_suffix(name); unread != nullptr && !suffix.empty()) {
      ++(*unread)[suffix];
    }
  }
  flush();
  return samples;
}

std::vector<Samples> read_tar_shards(const std::vector<fs::path>& shards, UnreadFiles* unread) try {
  TORCH_CHECK(!shards.empty(), "no shard was given");
  Collected all;
  for (size_t i = 0; i < shards.size(); ++i) {
    try {
      const MappedFile file(shards[i]);
      TarReader tar(file.size(),
                    [&](uint64_t at, char* to, size_t size) { std::memcpy(to, file.data() + at, size); });
      for (auto& sample : index_shard(tar, unread)) {
        ++all.total;
        if (!sample.label.empty()) ++all.labelled;
        const size_t slash = sample.key.rfind('/');
        all.parts[slash == std::string::npos ? part_of(shards[i]) : sample.key.substr(0, slash)].push_back(
            {std::move(sample), static_cast<uint32_t>(i)});
      }
    } catch (const Malformed& malformed) {
      refuse(shards[i], malformed);
    }
  }
  TORCH_CHECK(all.total > 0, "'", shards.front().string(), "'", shards.size() > 1 ? " and the others" : "",
              ": no image (", format_suffixes(), ") is in there");

  // Class folders in place of labels.
  if (all.labelled == 0) {
    std::map<std::string, std::vector<Collected::Entry>> parts;
    for (auto& [folder, entries] : all.parts) {
      const fs::path path(folder);
      for (auto& entry : entries) {
        std::string part = folder;
        if (entry.sample.key.find('/') != std::string::npos) {
          entry.sample.label = path.filename().string();
          part = path.has_parent_path() ? path.parent_path().string() : part_of(shards[entry.shard]);
        }
        parts[part].push_back(std::move(entry));
      }
    }
    all.parts = std::move(parts);
  }
  for (const auto& [folder, entries] : all.parts) {
    for (const auto& entry : entries) {
      if (!entry.sample.label.empty()) all.labels.insert(entry.sample.label);
      TORCH_CHECK(all.labelled == 0 || !entry.sample.label.empty(), "'", shards[entry.shard].string(), "': '",
                  printable(entry.sample.encoded), "' has no label (.cls or .json), and others have one");
    }
  }

  std::vector<std::string> classes =
      all.labelled > 0 ? class_list_beside(shards.front()) : std::vector<std::string>{};
  const bool positions = all.labelled > 0 && are_positions(all.labels, shards.front());
  const auto numbers = class_numbers(all.labels, positions, classes, shards.front());
  const auto paths = std::make_shared<const std::vector<fs::path>>(shards);
  std::vector<Samples> result;
  for (const auto& [part, entries] : all.parts) {
    auto& samples = result.emplace_back();
    set_part(samples, part);
    samples.set_shards(paths);
    samples.classes = classes;
    samples.numbered = positions;
    for (const auto& [sample, shard] : entries) {
      samples.add(sample.encoded, sample.label.empty() ? -1 : numbers.at(sample.label),
                  {shard, static_cast<uint32_t>(sample.size), sample.offset});
    }
  }
  return result;
} catch (...) {
  rethrow_from("read_tar_shards");
}

}  // namespace tpgm

// Decodes every image and compares the content of all files.
#include "tpgm/data/check.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

constexpr size_t kMostNamed = 3;  // classes in a line

struct FileFacts {
  int32_t width = 0, height = 0;
  size_t bytes = 0, hash = 0;
  std::string reason;  // why it cannot be decoded
};

FileFacts inspect(const Samples& samples, int64_t i, int64_t max_pixels) {
  FileFacts facts;
  try {
    const std::string bytes = samples.read(i);
    facts.bytes = bytes.size();
    facts.hash = std::hash<std::string_view>()(bytes);
    const Image image = EncodedImage(bytes, max_pixels).decode();
    facts.width = static_cast<int32_t>(image.width);
    facts.height = static_cast<int32_t>(image.height);
  } catch (const Malformed& malformed) {
    facts.reason = fmt::format("{}; {}", malformed.reason, malformed.advice);
  }
  return facts;
}

struct Place {
  const Samples* samples;
  int64_t index;
};

// Files with equal hashes may still differ.
bool same_bytes(const Place& a, const Place& b) {
  try {
    return a.samples->read(a.index) == b.samples->read(b.index);
  } catch (const Malformed&) {
    return false;
  }
}

}  // namespace

int64_t DatasetReport::twins_apart() const {
  return std::count_if(twins.begin(), twins.end(), [](const auto& each) { return each.apart; });
}

DatasetReport check_dataset(const Dataset& data, const std::vector<Dataset::Part>& parts, int64_t max_pixels,
                            const std::function<void(size_t)>& progress) {
  DatasetReport report;
  std::unordered_map<size_t, std::vector<Place>> by_hash;  // one place for each content
  for (const auto& part : parts) {
    std::vector<FileFacts> files(static_cast<size_t>(part->size()));
    at::parallel_for(0, part->size(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        files[static_cast<size_t>(i)] = inspect(*part, i, max_pixels);
        if (progress) progress(1);
      }
    });
    PartReport& about = report.parts.emplace_back();
    about.title = printable(part->title());
    about.images = part->size();
    about.per_class.resize(data.classes().size());
    for (int64_t i = 0; i < part->size(); ++i) {
      const FileFacts& encoded = files[static_cast<size_t>(i)];
      if (part->label(i) >= 0) ++about.per_class[static_cast<size_t>(part->label(i))];
      about.bytes += static_cast<int64_t>(encoded.bytes);
      if (!encoded.reason.empty()) {
        report.unreadable.push_back({i, part->place(i), encoded.reason});
        continue;
      }
      about.widths.push_back(encoded.width);
      about.heights.push_back(encoded.height);
      const Place here{part.get(), i};
      auto& alike = by_hash[encoded.hash];
      const auto twin = std::find_if(alike.begin(), alike.end(),
                                     [&](const Place& other) { return same_bytes(other, here); });
      if (twin == alike.end()) {
        alike.push_back(here);
      } else {
        report.twins.push_back({twin->samples->place(twin->index), part->place(i),
                                twin->samples != part.get(),
                                twin->samples->label(twin->index) != part->label(i)});
      }
    }
    std::sort(about.widths.begin(), about.widths.end());
    std::sort(about.heights.begin(), about.heights.end());
  }
  return report;
}

std::vector<std::string> unused_labels(const Dataset& data) {
  std::vector<bool> used(data.classes().size());
  for (const auto& part : data.parts()) {
    for (const auto label : part->labels()) {
      if (label >= 0) used[static_cast<size_t>(label)] = true;
    }
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i] && data.classes()[i] == std::to_string(i)) missing.push_back(data.classes()[i]);
  }
  return missing;
}

std::vector<std::string> missing_classes(const Dataset& data, const DatasetReport& report) {
  std::vector<std::string> lines;
  for (const auto& part : report.parts) {
    std::vector<std::string> names;
    for (size_t i = 0; i < part.per_class.size(); ++i) {
      if (part.per_class[i] == 0) names.push_back(printable(data.classes()[i]));
    }
    if (names.empty() || names.size() == data.classes().size()) continue;
    const size_t count = names.size();
    if (count > kMostNamed) names.resize(kMostNamed);
    lines.push_back(fmt::format("{} lacks {} of {} classes: {}{}", part.title, count, data.classes().size(),
                                fmt::join(names, ", "), count > kMostNamed ? ", …" : ""));
  }
  return lines;
}

}  // namespace tpgm

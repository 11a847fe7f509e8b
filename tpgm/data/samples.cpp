// Names, labels and bytes of samples.
#include "tpgm/data/samples.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/io/file.h"

namespace tpgm {
namespace {

constexpr std::array<std::string_view, 6> kSplits = {"train", "val",    "validation",
                                                     "test",  "radius", "selection"};

bool is_split(std::string_view word) {
  return std::find(kSplits.begin(), kSplits.end(), word) != kSplits.end();
}

constexpr size_t kLargestFile = 1 << 30;

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// `size` bytes from `offset`, or the whole file.
std::string read_file(const std::filesystem::path& path, const Samples::Extent* extent) {
  // O_NONBLOCK: a pipe must not keep us waiting.
  const Descriptor file{
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); })};
  if (file.value < 0) {
    const int reason = errno;
    throw Malformed{std::strerror(reason), reason == ENOENT ? "was it moved or deleted?" : "can it be read?"};
  }
  size_t size = 0;
  if (extent != nullptr) {
    size = extent->size;
  } else {
    struct stat status {};
    if (::fstat(file.value, &status) != 0 || !S_ISREG(status.st_mode)) {
      throw Malformed{"it is not a regular file", "expected an image"};
    }
    size = static_cast<size_t>(status.st_size);
  }
  if (size > kLargestFile) throw Malformed{fmt::format("it has {} bytes", size), "expected an image"};
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const auto at = static_cast<off_t>(done + (extent != nullptr ? extent->offset : 0));
    const ssize_t count = ::pread(file.value, bytes.data() + done, size - done, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Malformed{std::strerror(errno), "can it be read?"};
    require(count > 0, "it ends early");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

}  // namespace

bool Samples::in_files() const {
  return entries_->extents.empty() &&
         std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->in_files(); });
}

Samples Samples::joined(std::vector<std::shared_ptr<const Samples>> parts) {
  Samples all;
  for (const auto& part : parts) {
    TORCH_CHECK(part->classes == parts.front()->classes, "[Samples::joined] '", printable(part->title()),
                "' has other classes than '", printable(parts.front()->title()), "'");
    all.domain += (all.domain.empty() ? "" : ", ") + part->title();
    all.labels_.insert(all.labels_.end(), part->labels_.begin(), part->labels_.end());
    all.ends_.push_back(all.size());
  }
  if (!parts.empty()) all.classes = parts.front()->classes;
  all.parts_ = std::move(parts);
  return all;
}

std::pair<const Samples*, int64_t> Samples::in_part(int64_t i) const {
  const auto part = std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin();
  const auto at = static_cast<size_t>(part);
  return {parts_.at(at).get(), i - (at == 0 ? 0 : ends_[at - 1])};
}

std::string_view Samples::name(int64_t i) const {
  if (!parts_.empty()) {
    const auto [part, place] = in_part(i);
    return part->name(place);
  }
  const auto at = static_cast<size_t>(i);
  const auto& ends = entries_->ends;
  const uint64_t begin = at == 0 ? 0 : ends[at - 1];
  return std::string_view(entries_->names).substr(begin, ends[at] - begin);
}

std::string Samples::place(int64_t i) const {
  if (!parts_.empty()) {
    const auto [part, in_it] = in_part(i);
    return part->place(in_it);
  }
  if (in_files()) return (root_ / name(i)).string();
  return fmt::format("{}: {}", (*shards_)[entries_->extents[static_cast<size_t>(i)].shard].string(), name(i));
}

std::string Samples::read(int64_t i) const {
  if (!parts_.empty()) {
    const auto [part, place] = in_part(i);
    return part->read(place);
  }
  if (in_files()) return read_file(root_ / name(i), nullptr);
  const Extent& extent = entries_->extents[static_cast<size_t>(i)];
  return read_file((*shards_)[extent.shard], &extent);
}

std::string Samples::title() const {
  return domain.empty() || split.empty() ? domain + split : domain + "/" + split;
}

Samples::Entries& Samples::own_entries() {
  if (entries_.use_count() > 1) entries_ = std::make_shared<Entries>(*entries_);
  return *entries_;
}

void Samples::add(std::string_view name, int64_t label) {
  Entries& entries = own_entries();
  entries.names += name;
  entries.ends.push_back(entries.names.size());
  labels_.push_back(static_cast<int32_t>(label));
}

void Samples::add(std::string_view name, int64_t label, const Extent& extent) {
  add(name, label);
  own_entries().extents.push_back(extent);
}

void Samples::relabel(const std::vector<int32_t>& labels, std::vector<std::string> names) {
  for (auto& label : labels_) {
    if (label >= 0) label = labels.at(static_cast<size_t>(label));
  }
  classes = std::move(names);
}

void set_part(Samples& samples, const std::string& folders) {
  samples.domain.clear();
  samples.split.clear();
  for (const auto& folder : std::filesystem::path(folders)) {
    const std::string word = folder.string();
    if (samples.split.empty() && is_split(word)) {
      samples.split = word;
    } else if (!word.empty() && word != ".") {
      samples.domain += (samples.domain.empty() ? "" : "/") + word;
    }
  }
}

void set_part_of_file(Samples& samples, const std::string& stem) {
  const size_t cut = stem.find_last_of("_-");
  if (cut != std::string::npos && is_split(stem.substr(cut + 1))) {
    samples.domain = stem.substr(0, cut);
    samples.split = stem.substr(cut + 1);
  } else {
    set_part(samples, stem);
  }
}

bool is_image_name(std::string_view name) { return has_image_suffix(name); }

bool all_numbers(const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(), [](const auto& name) {
    const bool digits = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    return digits && name.size() < 10 && parse_number<int64_t>(name) < kMostClasses;
  });
}

void sort_classes(std::vector<std::string>& names) {
  if (all_numbers(names)) {
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
      return std::pair(parse_number<int64_t>(a), a) < std::pair(parse_number<int64_t>(b), b);
    });
  } else {
    std::sort(names.begin(), names.end());
  }
}

}  // namespace tpgm

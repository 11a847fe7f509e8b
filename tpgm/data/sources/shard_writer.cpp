// Keys, labels and the list of classes of new shards.
#include "tpgm/data/sources/shard_writer.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/class_list.h"
#include "tpgm/data/formats/encoded_image.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/data/sources/tar_writer.h"
#include "tpgm/io/folder.h"

namespace tpgm {
namespace {

// A key must have no dot but the one before its ending; a file's name, no '/'. Names in other scripts stay.
std::string key_text(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return c < 0x80 && !std::isalnum(c) && c != '-' && c != '_'; }, '_');
  return text;
}

void add(TarWriter& tar, const Samples& samples, int64_t i, const ShardOptions& options) {
  const std::string bytes = samples.read(i);
  const EncodedImage encoded(bytes, options.max_pixels());  // throws if it is none
  const std::string stem = std::filesystem::path(samples.name(i)).stem().string();
  const std::string key = fmt::format("{:08}_{}", i, key_text(stem));
  tar.add(fmt::format("{}{}", key, format_of(bytes)->suffixes.front()), bytes);
  if (samples.label(i) >= 0) tar.add(key + ".cls", std::to_string(samples.label(i)));
}

}  // namespace

void write_shards(const Dataset& data, const std::vector<Dataset::Part>& parts,
                  const std::filesystem::path& folder, const ShardOptions& options,
                  const std::function<void(size_t)>& progress) try {
  TORCH_CHECK(options.shard_bytes() > 0, "shard_bytes ", options.shard_bytes(), " must be at least 1");
  AtomicFolder made(folder);
  std::set<std::string> names;
  for (const auto& part : parts) {
    const std::string name = key_text(part->title());
    TORCH_CHECK(names.insert(name).second, "two parts would both be '", printable(name),
                "-*.tar'; rename one, or choose with `domains`");
    std::optional<TarWriter> tar;
    int64_t shards = 0;
    for (int64_t i = 0; i < part->size(); ++i) {
      if (!tar) tar.emplace(made.partial() / fmt::format("{}-{:06}.tar", name, shards++));
      try {
        add(*tar, *part, i, options);
      } catch (const Malformed& malformed) {
        refuse(part->place(i), malformed);
      }
      if (progress) progress(1);
      if (static_cast<int64_t>(tar->size()) < options.shard_bytes() && i + 1 < part->size()) continue;
      tar->commit();
      tar.reset();
    }
  }
  if (!data.classes().empty()) save_class_list(data.classes(), made.partial() / "classes.txt");
  made.commit();
} catch (...) {
  rethrow_from("write_shards");
}

}  // namespace tpgm

// `tpgm data`: a table of its subcommands, and what commands that load pictures share.
#include "tools/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "tools/text.h"
#include "tpgm/base/byte_count.h"

namespace tpgm::tools {
namespace {

constexpr Command kCommands[] = {
    {"check", "count classes and images; find unreadable and duplicate images", configure_data_check},
    {"split", "write disjoint lists for training, radii and selection", configure_data_split},
    {"shards", "pack class folders or lists into tar shards", configure_data_shards},
    {"glyphs", "draw the built-in data set from the system's fonts", configure_data_glyphs},
};

}  // namespace

Run configure_data(CLI::App& app) {
  std::vector<std::pair<CLI::App*, Run>> runs;
  for (const auto& command : kCommands) {
    auto* sub = app.add_subcommand(command.name, command.summary);
    sub->option_defaults()->always_capture_default();
    runs.emplace_back(sub, command.configure(*sub));
  }
  app.require_subcommand(1);
  return [runs] {
    for (const auto& [sub, run] : runs) {
      if (sub->parsed()) return run();
    }
    return 2;  // require_subcommand has seen to it that one is
  };
}

void LoaderArguments::add_to(CLI::App& app) {
  app.add_option("-b,--batch-size", batch_size, "Batch size")->check(CLI::Range(1, 1 << 20));
  app.add_option("-j,--workers", workers, "Data loading threads (0: one per core)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--on-bad-image", on_bad_image,
                 "On an unreadable image: error (stop and name it) or skip (leave it out and list it)")
      ->check(parses_as<OnBadImage>());
  app.add_option("--max-pixels", max_pixels,
                 "Refuse images with more pixels than this, before memory is allocated for them")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--cache", cache, "Cache decoded images in memory, up to this size: 4GB, 500MiB (0: no cache)")
      ->check(parses_as<ByteCount>());
}

LoaderOptions LoaderArguments::options(c10::Device device) const {
  const auto threads = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return LoaderOptions()
      .batch_size(batch_size)
      .workers(workers > 0 ? workers : threads)
      .max_pixels(max_pixels)
      .on_bad_image(parsed<OnBadImage>(on_bad_image))
      .cache(parsed<ByteCount>(cache).bytes)
      .device(device);
}

std::string pictures_text(size_t count) {
  return count == 1 ? "1 picture" : fmt::format("{} pictures", grouped(static_cast<int64_t>(count)));
}

std::vector<Dataset::Part> parts_of(const Dataset& data, const std::vector<std::string>& names) {
  if (names.empty()) return data.parts();
  std::vector<Dataset::Part> parts;
  for (const auto& name : names) {
    const size_t before = parts.size();
    for (const auto& part : data.parts()) {
      const bool taken = std::find(parts.begin(), parts.end(), part) != parts.end();
      if (!taken && (part->title() == name || part->domain == name)) parts.push_back(part);
    }
    if (parts.size() == before) parts.push_back(data.part(name, Role::kTest));  // throws, with the nearest
  }
  return parts;
}

size_t count_pictures(const std::vector<Dataset::Part>& parts) {
  size_t count = 0;
  for (const auto& part : parts) count += static_cast<size_t>(part->size());
  return count;
}

void print_notes(const char* command, const Dataset& data) {
  for (const auto& note : data.notes()) say(fmt::format("tpgm {}: '{}': {}\n", command, data.where(), note));
}

}  // namespace tpgm::tools

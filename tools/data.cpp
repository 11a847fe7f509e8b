// `tpgm data`: the table of its subcommands, and functions shared by commands that load images.
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
    {"check",
     "report classes, sizes, unreadable files, and images that occur in more than one domain or split",
     configure_data_check},
    {"split", "write disjoint lists for training, radii and selection", configure_data_split},
    {"shards", "pack folders or lists into tar shards", configure_data_shards},
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
    return 2;  // not reached: require_subcommand(1)
  };
}

std::string images_text(size_t count) { return counted(static_cast<int64_t>(count), "image"); }

std::vector<Dataset::Part> parts_of(const Dataset& data, const std::vector<std::string>& names) {
  if (names.empty()) return data.parts();
  std::vector<Dataset::Part> parts;
  for (const auto& name : names) {
    const size_t before = parts.size();
    for (const auto& part : data.parts()) {
      const bool taken = std::find(parts.begin(), parts.end(), part) != parts.end();
      if (!taken && (part->title() == name || part->domain == name)) parts.push_back(part);
    }
    if (parts.size() == before) parts.push_back(data.part(name, Role::kTest));  // throws, naming the nearest
  }
  return parts;
}

size_t count_images(const std::vector<Dataset::Part>& parts) {
  size_t count = 0;
  for (const auto& part : parts) count += static_cast<size_t>(part->size());
  return count;
}

void print_notes(const char* command, const Dataset& data) {
  if (const auto unread = data.unread_note(); !unread.empty())
    say(fmt::format("tpgm {}: {}\n", command, unread));
  for (const auto& note : data.notes()) say(fmt::format("tpgm {}: '{}': {}\n", command, data.where(), note));
}

}  // namespace tpgm::tools

// The subcommands of `tpgm data`, and functions shared by commands that load images.
#pragma once

#include <string>
#include <vector>

#include "tools/command.h"
#include "tpgm/data/dataset.h"
#include "tpgm/data/loader.h"

namespace tpgm::tools {

Run configure_data_check(CLI::App& app);
Run configure_data_glyphs(CLI::App& app);
Run configure_data_shards(CLI::App& app);
Run configure_data_split(CLI::App& app);

/// "1,234 images".
std::string images_text(size_t count);

/// The parts called `names`, in that order, or all if there are none. A domain means all of its splits.
std::vector<Dataset::Part> parts_of(const Dataset& data, const std::vector<std::string>& names);
size_t count_images(const std::vector<Dataset::Part>& parts);

/// Prints the notes of a data set, such as files that are not read, to stderr.
void print_notes(const char* command, const Dataset& data);

}  // namespace tpgm::tools

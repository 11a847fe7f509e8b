// Functions of commands that make several runs: how to start them and show their progress.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/progress.h"
#include "tpgm/study/jobs.h"
#include "tpgm/train/recipe.h"

namespace tpgm::tools {

/// Runs by processes of `tpgm train`, until interrupted(). Lines on stderr begin with "tpgm COMMAND: ";
/// `progress` must outlive the runs, and shows them on a terminal only.
JobOptions job_options(const std::string& command, int64_t side_by_side, Progress& progress);

/// Adds --choose; chosen_rule() is its value, none if it was not given.
void add_choose(CLI::App& app, std::string& choose);
std::optional<Choose> chosen_rule(const std::string& choose);

/// `tpgm train --sweep`. Returns the exit status.
int run_sweep_command(const Recipe& recipe, int64_t side_by_side, bool dry_run, bool json);

}  // namespace tpgm::tools

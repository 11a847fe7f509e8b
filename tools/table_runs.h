// Tables of recipes as commands run them: the plan, and the report of the runs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/study/plan.h"

namespace tpgm::tools {

/// "0", "1", ...: `count` seeds.
std::vector<std::string> first_seeds(int64_t count);

/// The cost of a plan under the title `heading`, and the time that its runs take at the speed of this
/// machine. The speed is measured in a process of its own: `command` with the option of add_measure().
std::string plan_text(const std::string& command, const std::string& heading, const TablePlan& plan,
                      DataSizes& sizes);
/// Adds the hidden option --measure, whose value is the recipe for measure().
void add_measure(CLI::App& app, std::string& recipe);
/// Prints the speed of a recipe: what `command` does if it has --measure.
int measure(const std::string& command, const std::string& recipe);

/// Makes the runs of a plan, writes FOLDER/report.html, and prints the table, what was chosen on selection
/// data, the summary and the place of the report. False if some runs failed; throws if all did.
bool run_and_report(const std::string& command, TablePlan& plan, DataSizes& sizes,
                    const std::filesystem::path& folder, const std::string& title);

}  // namespace tpgm::tools

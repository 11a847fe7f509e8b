// A page about runs: numbers, curves, layers, images, and how to do it again.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tpgm/study/run_set.h"

namespace tpgm {

/// What was left out of the runs, and why: in the page, and for the user.
std::vector<std::string> notes_of(const RunSet& runs);

/// The command that repeats the run of a recipe, as the program that writes the page spells it.
using RepeatCommand = std::function<std::string(const std::filesystem::path& recipe)>;

/// Writes the page to `html`, and beside it a folder of its name without the extension with results.md, .tex
/// and .csv and a .svg and .csv for each figure; files of the same names are replaced. Sections for which the
/// runs have no data say so. Without `repeat` the page shows the recipes alone. Returns the files, the page
/// first.
std::vector<std::filesystem::path> write_report(const RunSet& runs, const std::filesystem::path& html,
                                                const std::string& title, const RepeatCommand& repeat = {});

}  // namespace tpgm

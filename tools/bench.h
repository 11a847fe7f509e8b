// Functions that the subcommands of `tpgm bench` share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/progress.h"
#include "tools/text.h"

namespace tpgm::tools {

/// measure(options) with a progress line, which is cleared before the report is printed.
template <class Options, class Measure>
auto with_progress(const std::string& what, Options options, Measure&& measure) {
  std::optional<Progress> progress;
  options.progress = [&](int64_t steps) {
    progress.emplace(what, static_cast<size_t>(steps),
                     [](size_t count) { return grouped(static_cast<int64_t>(count)); });
    return [&progress] { progress->add(1); };
  };
  return measure(options);
}

/// The script of the rival: `given`, or the one called `name` that comes with tpgm; empty without a Python.
/// Throws if the script or the Python is missing, or if the Python lacks one of the `modules`.
std::filesystem::path find_rival(const std::string& python, const std::string& given, const std::string& name,
                                 const std::vector<std::string>& modules);

/// Adds `--rival`.
void add_rival(CLI::App& app, std::string& path, const std::string& name);

}  // namespace tpgm::tools

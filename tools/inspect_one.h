// `tpgm inspect A`: what is in one checkpoint. Links no LibTorch: see launcher.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"

namespace tpgm::tools {

struct InspectArguments {
  std::string a, b, key, sort = "file", plot;
  std::vector<std::string> only, exclude;
  bool json = false, keep_prefix = false;
};

void add_inspect_options(CLI::App& app, InspectArguments& args);
int inspect_one(const InspectArguments& args);

/// Path, format, files, notes and metadata, as JSON.
nlohmann::ordered_json summary(const Checkpoint& checkpoint);
/// The width of a column that holds the names, at least `least`.
size_t width_of(const std::vector<std::string>& names, size_t least);

}  // namespace tpgm::tools

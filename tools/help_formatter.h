// --help in the words of other command lines: INT in place of CLI11's "INT:INT in [0 - 9]", and switches without the
// value that CLI11 stores for their other name.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace tpgm::tools {

std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace tpgm::tools

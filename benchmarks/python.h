// The Python interpreter that runs a rival.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpgm::benchmarks {

/// Throws unless the script exists and `python` is a Python that has the modules.
/// The modules are searched and not imported, which would take seconds.
void check_python(const std::string& python, const std::filesystem::path& script,
                  const std::vector<std::string>& modules);

/// The status of a process, as waitpid() has it, as text: "exit status 1".
std::string status_text(int status);

}  // namespace tpgm::benchmarks

// The Python that a rival runs in.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpgm::benchmarks {

/// For a command line of sh.
std::string in_shell(const std::filesystem::path& path);

/// Throws, for the command `call`, unless there is the script and `python` is a Python that has the modules:
/// before anything is measured, not after. They are looked for, not imported, which would take seconds.
void check_python(const std::string& call, const std::string& python, const std::filesystem::path& script,
                  const std::vector<std::string>& modules);

/// What pclose() gave: "exit status 1".
std::string status_text(int status);

}  // namespace tpgm::benchmarks

// Entries NAME=PATH of the option `test`: tests in data sets of their own.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/train/options.h"

namespace tpgm {

/// "v2=../imagenetv2".
struct OtherTest {
  std::string name;
  std::filesystem::path path;
};
/// An entry of `test` in its parts; nothing if it names a part of `data-dir`.
std::optional<OtherTest> other_test(const std::string& test);

/// The places in which `path` exists, of those relative to each of `folders`, in that order; the path itself if
/// it is absolute. They are absolute; `..` behind a symbolic link is the parent of what the link points to.
std::vector<std::filesystem::path> places_of(const std::filesystem::path& path,
                                             const std::vector<std::filesystem::path>& folders);

/// The entries with absolute paths: the first of places_of(). Those without a place stay as they are, and those
/// that would have a comma, which separates entries.
std::vector<std::string> absolute_tests(std::vector<std::string> tests,
                                        const std::vector<std::filesystem::path>& folders);

/// Where a relative PATH is looked for: the working folder, then `data-dir`.
std::vector<std::filesystem::path> test_folders(const std::string& data_dir);

}  // namespace tpgm

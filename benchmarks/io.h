// Merging two checkpoints, compared with a plain copy and with Python.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "benchmarks/progress.h"

namespace tpgm::benchmarks {

struct IoOptions {
  std::filesystem::path folder;  ///< for temporary files, which are removed afterwards
  double gigabytes = 2;          ///< of each checkpoint
  int64_t repeats = 3;
  std::string python;  ///< an interpreter with torch and safetensors, to run rivals/io.py on the same files
  std::filesystem::path rival;  ///< that script
  StartProgress progress;
};

/// Medians in seconds; the inputs are in the page cache. Every write ends with fsync, except in Python.
struct IoReport {
  double gigabytes = 0;
  int64_t tensors = 0;
  double copy = 0;            ///< reads both files and writes one: all threads, write-back begun early
  double copy_plain = 0;      ///< the same in one thread: read, read, write
  double merge = 0;           ///< tpgm::merge_checkpoints, fingerprints included
  double merge_process = 0;   ///< `tpgm wise`, the whole process
  double merge_peak_mib = 0;  ///< growth of resident memory, without mapped pages
  double compare = 0;         ///< tpgm::compare_checkpoints
  double open = 0;            ///< tpgm::Checkpoint
  double python = 0;          ///< load_file, arithmetic, save_file, in a fresh process without its imports
  double python_process = 0;  ///< with them
};

IoReport measure_io(const IoOptions& options);

}  // namespace tpgm::benchmarks

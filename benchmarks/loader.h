// Batches of JPEGs from a folder, compared with Pillow and torchvision on the same files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/progress.h"

namespace tpgm::benchmarks {

struct LoaderBenchOptions {
  int64_t images = 1000;  ///< 500 × 375, made by the benchmark: noise and discs with a photograph's spectrum
  int quality = 85;
  int64_t image_size = 224;
  int64_t batch_size = 64;
  int64_t repeats = 2;           ///< passes over the images
  std::filesystem::path folder;  ///< for temporary files, which are removed afterwards
  std::string python;            ///< an interpreter to run the rival; empty: no rival
  std::filesystem::path rival;   ///< rivals/loader.py
  StartProgress progress;
};

/// Medians of turns of two batches.
struct LoaderSpeed {
  double images_s = 0;      ///< by the clock
  double images_cpu_s = 0;  ///< by the CPU time of all threads; other load on the machine changes it little
};

/// A pipeline from files to normalized float32 batches on the CPU.
struct LoaderRow {
  std::string name;                  ///< "training, exact"
  LoaderSpeed ours;                  ///< one worker
  std::optional<LoaderSpeed> rival;  ///< one process, one thread
};

struct LoaderReport {
  double file_kb = 0;  ///< mean
  int64_t turns = 0;
  std::vector<LoaderRow> rows;
  std::string rival, rival_torch;  ///< "torchvision 0.28.0, Pillow 13.0.0"

  /// The first row with two workers, and from shards.
  LoaderSpeed two_workers, shards;

  /// Peak growth of memory, without mapped pages, with the default queue and two workers.
  double queue_mib = 0;                             ///< queue × batch, in bytes of its tensors
  double resident_mib = 0, resident_twice_mib = 0;  ///< of one pass; with twice as many files
  /// Opening a list of a million files.
  double list_s = 0, list_mib = 0;
};

/// tpgm and the rival take turns on the same files, because the speed of a machine may drift by more than
/// they differ. Throws with the rival's message if it fails.
LoaderReport measure_loader(const LoaderBenchOptions& options);

}  // namespace tpgm::benchmarks

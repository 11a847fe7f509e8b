// Batches of JPEGs from a folder, beside torchvision's transforms of Pillow's images, on the same files.
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
  std::filesystem::path folder;  ///< for the files, removed in the end
  std::string python;            ///< an interpreter to run the rival; empty: ours alone
  std::filesystem::path rival;   ///< rivals/loader.py
  StartProgress progress;
};

/// Medians of turns of two batches.
struct LoaderSpeed {
  double images_s = 0;      ///< by the clock
  double images_cpu_s = 0;  ///< by the time of all its threads: the same where nobody else uses the machine
};

/// A pipeline from files to normalised float32 batches on the CPU.
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

  /// The first row again.
  LoaderSpeed two_workers, shards;

  /// Memory beyond mapped pages and beyond what there was before, at its peak, of the default queue with two
  /// workers.
  double queue_mib = 0;                             ///< queue × batch, in bytes of its tensors
  double resident_mib = 0, resident_twice_mib = 0;  ///< of one pass; the same of twice as many files
  /// Opening a list of a million files.
  double list_s = 0, list_mib = 0;
};

/// Ours and the rival take turns with the same files, as the machine's speed may drift by more than they
/// differ. Throws if the rival fails, with its own words.
LoaderReport measure_loader(const LoaderBenchOptions& options);

}  // namespace tpgm::benchmarks

// Two checkpoints into one: a fine-tuned model is projected towards its pre-trained weights, by radii learned
// on held-out data.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/report/table.h"
#include "tpgm/study/given_classifier.h"
#include "tpgm/train/options.h"

namespace tpgm {

struct ProjectOptions {
  std::string anchor, checkpoint;  ///< pre-trained and fine-tuned: a file, folder or run, of any layout
  std::string head;                ///< a file made from text, for checkpoints that have none
  std::string radius_data,
      part;                ///< a data set, and one of its parts; empty: the only one, or one called radius
  TpgmOptions tpgm;        ///< but for mu, and the parameters that have no anchor
  std::vector<double> mu;  ///< an output for each
  int64_t radius_batch_size = 64;
  TrainOptions options;  ///< of these the model, the classes, the seed, and how images are read
};

/// Ratios and distances of some tensors together.
struct ProjectedBlock {
  std::string name;
  int64_t tensors = 0;
  double ratio = 0;              ///< mean
  double before = 0, after = 0;  ///< Frobenius norms of the displacement

  void add(double tensor_ratio, double tensor_before, double tensor_after);
};

/// What one mu came to. Losses are means over the first and the last tenth of the steps; NaN without any.
struct Projected {
  double mu = 0, first_loss = 0, last_loss = 0;
  NamedNumbers ratios, radii;
  std::vector<ProjectedBlock> blocks;
  ProjectedBlock all{"all"};
};

/// A step of learning radii, of all mu together.
struct ProjectProgress {
  int64_t step = 0, steps = 0;
  double mu = 0;
  at::Tensor loss;  ///< to read it waits for the device
};

class Projector {
 public:
  /// Opens everything. Throws for whatever can be known to be wrong before the work; `note` is told what was
  /// found.
  Projector(ProjectOptions options, c10::Device device, const Say& note);
  ~Projector();

  /// Where radii are learned.
  const Dataset::Part& part() const;
  /// Learns for each mu, and writes its model to the file of the same place; the files appear together at the
  /// end. `commands` go into their metadata.
  std::vector<Projected> run(const std::vector<std::filesystem::path>& files,
                             const std::vector<std::string>& commands,
                             const std::function<void(const ProjectProgress&)>& progress);
  /// Images that could not be read.
  const std::vector<BadImage>& skipped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A file for each mu: `output` itself for one; else OUT-mu=0.001.safetensors and so on, or "{mu}" replaced
/// by the value; in a folder mu=0.001.safetensors.
std::vector<std::filesystem::path> projected_files(const std::string& output, const std::vector<double>& mu);

/// A row for each block.
Table to_table(const std::vector<Projected>& all);
/// With the ratio and the radius of every tensor, and the file that it was written to.
nlohmann::ordered_json to_json(const Projected& projected, const std::filesystem::path& file);

}  // namespace tpgm

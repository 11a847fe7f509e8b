// Projects a fine-tuned checkpoint towards its pre-trained weights, with radii learned on held-out data.
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
  std::string head;                ///< a head file made from text, for checkpoints without a head
  std::string radius_data,
      part;                ///< a data set, and one of its parts; empty: the only part, or the split "radius"
  TpgmOptions tpgm;        ///< without mu
  std::vector<double> mu;  ///< one output for each value
  int64_t radius_batch_size = 64;
  TrainOptions options;  ///< used: model, classes, seed, amp, and the options of images
};

/// The ratios and distances of the tensors of a block.
struct ProjectedBlock {
  std::string name;
  int64_t tensors = 0;
  double ratio = 0;              ///< mean of the tensors' own
  double before = 0, after = 0;  ///< Frobenius norms of the displacement

  /// after / before: how much of the block's displacement is kept. NaN for a block that did not move.
  double kept() const;
  void add(double tensor_ratio, double tensor_before, double tensor_after);
};

/// The result for one mu. The losses are means over the first and the last tenth of the steps; NaN without
/// steps.
struct Projected {
  double mu = 0, first_loss = 0, last_loss = 0;
  NamedNumbers ratios, radii;
  std::vector<ProjectedBlock> blocks;
  ProjectedBlock all{"all"};
};

/// A radius step; `step` and `steps` count those of all mu.
struct ProjectProgress {
  int64_t step = 0, steps = 0;
  double mu = 0;
  at::Tensor loss;  ///< on the device: reading it synchronizes
};

class Projector {
 public:
  /// Opens checkpoints and data. Throws for all mistakes in options and files. `note` receives messages about
  /// them.
  Projector(ProjectOptions options, c10::Device device, const Say& note);
  ~Projector();

  /// The radius data.
  const Dataset::Part& part() const;
  /// For each mu learns radii and writes the projected model to the file with the same index. All files
  /// appear together at the end. `commands` go into their metadata.
  std::vector<Projected> run(const std::vector<std::filesystem::path>& files,
                             const std::vector<std::string>& commands,
                             const std::function<void(const ProjectProgress&)>& progress);
  /// Unreadable images.
  const std::vector<BadImage>& skipped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The output file of each mu. One mu: `output` itself, or model.safetensors if it is a folder. Several:
/// OUT-mu=0.001.safetensors, or mu=0.001.safetensors in a folder. "{mu}" in `output` is replaced by the
/// value.
std::vector<std::filesystem::path> projected_files(const std::string& output, const std::vector<double>& mu);

/// A row for each block: its distance from the anchor before and, for each mu, after, with their ratio.
Table to_table(const std::vector<Projected>& all);
/// With the ratio and the radius of every tensor, and the name of its file. "distance_ratio" is kept(), and
/// "ratio" of a block the mean of its tensors' ratios.
nlohmann::ordered_json to_json(const Projected& projected, const std::filesystem::path& file);

}  // namespace tpgm

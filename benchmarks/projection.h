// Distance and projection of all tensors of a model, compared with ATen and with a plain copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/progress.h"
#include "tpgm/core/displacements.h"

namespace tpgm::benchmarks {

struct ProjectionOptions {
  at::Device device = at::kCPU;
  std::string model = "resnet50";
  at::ScalarType dtype = at::kFloat;
  int64_t repeats = 20;
  StartProgress progress;
};

/// Medians of one run; every repetition starts with cold caches.
struct ProjectionResult {
  Norm norm = Norm::kL2;
  double ours_ms = 0;
  double ours_gb_s =
      0;  ///< Five passes over the weights: two read for the distances, two read and one written after.
  double aten_ms = 0;             ///< The same arithmetic as ATen calls, tensor by tensor.
  double largest_difference = 0;  ///< Between the two results, in units of the weights' own precision.
};

struct ProjectionReport {
  int64_t tensors = 0;
  double megabytes = 0;  ///< The size of the weights.
  double copy_ms = 0;    ///< Copying as many bytes from tensor to tensor.
  double copy_gb_s = 0;  ///< Two passes: one read, one written.
  std::vector<ProjectionResult> norms;
};

ProjectionReport measure_projection(const ProjectionOptions& options);

}  // namespace tpgm::benchmarks

#include "benchmarks/projection.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>

#include "benchmarks/shapes.h"
#include "benchmarks/timing.h"

namespace tpgm::benchmarks {
namespace {

// Times work on a device: wall clock on the CPU, events on CUDA's current stream.
class Timer {
 public:
  explicit Timer(at::Device device) : device_(device) {
    // Larger than the last-level cache of current machines; reading and writing it evicts everything else.
    scrub_ = at::zeros({(device.is_cuda() ? 256 : 640) << 18}, at::TensorOptions(at::kInt).device(device));
  }

  // The median of `repeats` runs in milliseconds, after two that do not count. `prepare` is not timed.
  double median_ms(int64_t repeats, const std::function<void()>& prepare, const std::function<void()>& work) {
    std::vector<double> times;
    for (int64_t i = -2; i < repeats; ++i) {
      prepare();
      scrub_.add_(1);
      const auto ms = time_ms(work);
      if (i >= 0) {
        times.push_back(ms);
      }
    }
    return median(times);
  }

 private:
  double time_ms(const std::function<void()>& work) {
    if (device_.is_cpu()) return host_ms(work);
    Marks marks(device_);
    marks.add();
    work();
    marks.add();
    return marks.laps().front();
  }

  at::Device device_;
  at::Tensor scrub_;
};

// The way to write it without tpgm: the same mathematics, tensor by tensor.
void project_with_aten(at::Tensor& weights, const at::Tensor& anchor, double radius, Norm norm) {
  const auto delta = weights - anchor;
  const auto row_sums = [&] { return delta.dim() < 2 ? delta.abs().sum() : delta.abs().flatten(1).sum(1); };
  at::Tensor distance;
  switch (norm) {
    case Norm::kL2:
      distance = delta.norm();
      break;
    case Norm::kMars:
      distance = row_sums();
      break;
    case Norm::kMarsMax:
      distance = row_sums().max();
      break;
  }
  auto ratio = (radius / distance).clamp_max(1);
  if (ratio.dim() == 1 && delta.dim() > 1) {
    std::vector<int64_t> shape(delta.dim(), 1);
    shape[0] = -1;
    ratio = ratio.view(shape);
  }
  weights.copy_(anchor + ratio * delta);
}

}  // namespace

ProjectionReport measure_projection(const ProjectionOptions& options) {
  const at::NoGradGuard no_grad;
  const auto tensor_options = at::TensorOptions(options.dtype).device(options.device);
  std::vector<at::Tensor> start;
  std::vector<Selected> selected;
  int64_t elements = 0;
  for (const auto& shape : model_shapes(options.model)) {
    const auto anchor = at::randn(shape, tensor_options);
    start.push_back(anchor + at::randn_like(anchor) * 0.01);
    selected.push_back({"tensor" + std::to_string(start.size()), start.back().clone(), anchor});
    elements += anchor.numel();
  }
  const auto bytes = static_cast<double>(elements) * static_cast<double>(at::elementSize(options.dtype));

  ProjectionReport report;
  report.tensors = static_cast<int64_t>(selected.size());
  report.megabytes = bytes / 1e6;
  Timer timer(options.device);

  const auto from = at::randn({elements}, tensor_options);
  auto to = at::empty_like(from);
  // The copy, and two ways for each norm.
  const auto done = begin_progress(options.progress, 1 + 2 * std::size(kernels::kNorms));
  report.copy_ms = timer.median_ms(options.repeats, [] {}, [&] { to.copy_(from); });
  done();
  report.copy_gb_s = 2 * bytes / report.copy_ms / 1e6;

  for (const auto norm : kernels::kNorms) {
    Displacements displacements("bench", selected, norm, AnchorStorage::kWeights);
    displacements.measure();
    const auto radii =
        displacements.smallest() / 2;  // every row is outside of its radius, so all of it is written
    const auto host_radii = radii.cpu();
    const auto reset = [&] {
      for (size_t k = 0; k < start.size(); ++k) {
        selected[k].tensor.copy_(start[k]);
      }
    };
    ProjectionResult result;
    result.norm = norm;
    result.ours_ms = timer.median_ms(options.repeats, reset, [&] {
      displacements.measure();
      displacements.project(radii);
    });
    done();
    result.ours_gb_s = 5 * bytes / result.ours_ms / 1e6;
    std::vector<at::Tensor> ours;
    for (const auto& each : selected) {
      ours.push_back(each.tensor.clone());
    }
    result.aten_ms = timer.median_ms(options.repeats, reset, [&] {
      for (size_t k = 0; k < selected.size(); ++k) {
        project_with_aten(selected[k].tensor, selected[k].pretrained, host_radii.const_data_ptr<double>()[k],
                          norm);
      }
    });
    done();
    const double unit = options.dtype == at::kFloat ? 1.2e-7 : 7.9e-3;
    for (size_t k = 0; k < selected.size(); ++k) {
      const auto size = ours[k].abs().max().item<double>();
      const auto difference =
          (ours[k].to(at::kDouble) - selected[k].tensor.to(at::kDouble)).abs().max().item<double>();
      result.largest_difference = std::max(result.largest_difference, difference / size / unit);
    }
    report.norms.push_back(result);
  }
  return report;
}

}  // namespace tpgm::benchmarks

// One step of training: forward, backward, the method's hooks, the optimizer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tpgm/methods/method.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/cuda_graph.h"
#include "tpgm/train/optimizer.h"

namespace tpgm {

struct StepOptions {
  /// Compute in bf16 by autocast; the parameters are fp32 master weights.
  TORCH_ARG(bool, amp) = false;
  /// On CUDA with batches = 1, capture whole steps in CUDA graphs and replay them for batches of the same
  /// shape.
  TORCH_ARG(bool, cuda_graph) = true;
  /// Gradient accumulation: the number of batches whose gradients are averaged into one step.
  TORCH_ARG(int64_t, batches) = 1;
  /// Maximum norm of the gradient; 0: no clipping.
  TORCH_ARG(double, clip_grad) = 0;
  /// Label smoothing, for labels that are class numbers.
  TORCH_ARG(double, smoothing) = 0;
  /// The same for radius_loss().
  TORCH_ARG(double, radius_smoothing) = 0;
  /// Use contrastive_loss instead of classification_loss; labels must be class numbers.
  TORCH_ARG(bool, contrastive) = false;
};

/// Keeps references to model, method and optimizer, which must outlive it. With amp it tells the method which
/// parameters are read in bf16 (Capturable::read_in_bfloat16), until it is destroyed: a method belongs to one
/// TrainingStep at a time.
///
/// Steps do not synchronize with the device, with three exceptions: steps that are being captured, the first
/// GEMM or convolution of each shape, where the fastest algorithm is measured (kernels/gemm.h), and methods
/// that synchronize themselves, as TPGM does in its first step.
class TrainingStep {
 public:
  TrainingStep(Classifier& model, Method& method, Optimizer& optimizer, const StepOptions& options);
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  struct Result {
    at::Tensor loss;     ///< mean over the batch, detached, on the device
    at::Tensor correct;  ///< number of correct predictions, on the device
  };
  /// A batch of held-out data, for methods that learn radii.
  struct RadiusBatch {
    at::Tensor images, targets;  ///< targets: class numbers [n], or class probabilities [n, classes]
  };
  /// Returns the next radius batch. An eager step calls it when the method asks, a captured step beforehand;
  /// so it must not draw from the global random generators.
  using NextRadiusBatch = std::function<RadiusBatch()>;

  /// A whole step of one batch: backward() and update(). On CUDA, with options.cuda_graph() and a method that
  /// can be captured, the first few steps of each kind run eagerly and the next one is captured. From then on
  /// a step is one graph launch with bit-identical results. A step runs eagerly if its batch or radius batch
  /// has another shape.
  ///
  /// Captures are dropped when other parameters train, or when weights or the optimizer's state have moved to
  /// other memory. If a capture fails (for a model that synchronizes in its forward pass), the method may
  /// have counted a step that was not taken, and the process should end: LibTorch's allocator does not
  /// recover from an aborted capture, and its random generator throws until another capture succeeds.
  Result step(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets, double lr,
              const NextRadiusBatch& next_radius_batch = {});
  /// True if step() would capture or replay a step with these tensors, unless its radius batch turns out to
  /// have another shape. A loop that checks the loss before the update asks this first, and calls backward()
  /// and update() for all other steps.
  bool captures(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);

  /// Adds the gradients of one of the batches of a step. Predictions are compared with `labels` [n]; the loss
  /// is computed from `targets`: class numbers [n], or class probabilities [n, classes].
  ///
  /// Modules are in train() mode, except BatchNorms whose parameters are all frozen: they keep their
  /// statistics.
  Result backward(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);
  /// Takes the optimizer's step with the method's hooks around it, after all batches of the step. With fewer
  /// batches than options.batches(), gradients are averaged over the batches that there were. Sets gradients
  /// to none.
  void update(double lr, const NextRadiusBatch& next_radius_batch = {});
  /// Drops the gradients of the batches so far.
  void skip();

  /// The loss that a method learns radii from, with its autograd graph.
  at::Tensor radius_loss(const RadiusBatch& batch);

  /// How many kinds of steps (see StepPlan) are captured.
  int64_t captured() const;
  /// Drops all captures and frees their memory; the next steps warm up again.
  void forget();

 private:
  /// A batch is replayed only if its tensors have the layouts of the captured ones.
  struct Layout {
    explicit Layout(const at::Tensor& tensor);
    bool operator==(const Layout&) const = default;
    std::vector<int64_t> sizes, strides;
    at::ScalarType type;
  };
  using Layouts = std::vector<Layout>;
  /// A captured step, with the tensors from which it reads radius data and to which it writes its result.
  struct Capture {
    CudaGraph graph;
    std::vector<RadiusBatch> radius_batches;
    Result result;
  };
  /// The state of the steps of one kind.
  struct Kind {
    int64_t warm = 0;     // eager steps in a row with the same layouts
    Layouts radius_data;  // layouts of their radius batches
    std::unique_ptr<Capture> capture;
  };
  /// The address of a tensor, and whether it trains: a capture is valid as long as these are the same.
  using Place = std::pair<const void*, bool>;

  Result run(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);
  void average();
  void take_step(const Closure& radius_loss);
  Result replay(Kind& kind, const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets,
                const std::deque<RadiusBatch>& radius_batches);
  void follow_changes();

  Classifier& model_;
  Method& method_;
  Capturable* capturable_;  // the method, or null
  Optimizer& optimizer_;
  StepOptions options_;
  std::vector<at::Tensor> tensors_;  // parameters and buffers
  int64_t accumulated_ = 0;          // batches since the last update

  std::map<int, Kind> kinds_;
  // All captures share their inputs and their memory, because no two run at once.
  at::Tensor images_, labels_, targets_;
  std::shared_ptr<GraphMemory> memory_;
  Layouts data_;               // layouts of the batches to capture
  bool usual_ = false;         // the batch of the last backward() had these layouts
  std::vector<Place> places_;  // of tensors_ at the last step
  int64_t generation_ = -1;    // of the optimizer's state at the last step
};

/// Sets train() mode, except for BatchNorms whose parameters are all frozen.
void train_mode(torch::nn::Module& module);

/// The contrastive loss of CLIP between a batch of images and the texts of all classes, in fp32. `logits` [n,
/// texts]; `labels` [n] is the text of each image. It is the mean of two cross-entropies: of each image over
/// all texts, and of each text in the batch over the images of the batch, with equal target probability for
/// all images of the text. With one image per text it is the loss of Radford et al.
at::Tensor contrastive_loss(const at::Tensor& logits, const at::Tensor& labels);

/// Mean cross-entropy in fp32, with targets as in TrainingStep::backward.
at::Tensor classification_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing = 0);

}  // namespace tpgm

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
#include "tpgm/train/optim.h"

namespace tpgm {

struct StepOptions {
  /// bf16 by autocast; the parameters are fp32 masters.
  TORCH_ARG(bool, amp) = false;
  /// On CUDA, and with one batch a step, capture whole steps and replay them where batches have one shape.
  TORCH_ARG(bool, cuda_graph) = true;
  /// Batches whose gradients are averaged into one step.
  TORCH_ARG(int64_t, batches) = 1;
  /// Largest norm of the gradient; 0: any.
  TORCH_ARG(double, clip_grad) = 0;
  /// Of labels that are numbers.
  TORCH_ARG(double, smoothing) = 0;
  /// contrastive_loss in place of classification_loss; labels must be numbers.
  TORCH_ARG(bool, contrastive) = false;
};

/// Refers to model, method and optimizer, which must outlive it. With amp the method is told what is read in
/// bf16 (Capturable::read_in_bfloat16) as long as this lives, so give it to one of these at a time: destroy
/// the last before you make the next.
///
/// Nothing here waits for the device, but for the few steps that are being captured, the first product or
/// convolution of each shape where the fastest is searched for (kernels/gemm.h), and a method that waits
/// by itself, as TPGM does in its first step.
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
  /// A batch of held-out data, for methods that learn from them.
  struct RadiusBatch {
    at::Tensor images, labels;
  };
  /// Gives the next one. It is called when the method asks, or for a captured step beforehand, so it should
  /// draw nothing from the global random streams.
  using NextRadiusBatch = std::function<RadiusBatch()>;

  /// A whole step of one batch: backward() and update(). On CUDA, with options.cuda_graph() and a method that
  /// can be captured, the first few steps of each kind run as they are; then one is captured, and from there
  /// on a step is one launch that does the same, bit for bit. A batch of another shape, of radius data too,
  /// runs as it is. If capture fails (a model that waits for the device in its forward pass), the method
  /// may have counted a step that was not taken, and the process should end: LibTorch does not forget a
  /// capture that was broken off (its allocator none, its generator of the device only with the next one that
  /// succeeds; until then random numbers throw). Captures are forgotten when other parameters
  /// train, or when weights or the optimizer's state have moved to other memory.
  Result step(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets, double lr,
              const NextRadiusBatch& next_radius_batch = {});
  /// True if step() would capture or replay these, unless a radius batch, which is not known yet, has another
  /// shape. For a loop that wants to look at a loss before the update, and has backward() and update() for
  /// the others.
  bool captures(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);

  /// Gradients of one of the step's batches, added to those before it. `labels` [n] are what predictions are
  /// compared with; the loss is that of `targets`: labels as numbers [n], or shares of classes [n, classes].
  ///
  /// Modules train, but for BatchNorms whose parameters are all frozen: what is frozen stays as it is.
  Result backward(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);
  /// The method's hooks around the optimizer's step, after all of the step's batches. If they were fewer than
  /// options.batches(), their gradients are averaged over as many as there were. Gradients are none from the
  /// optimizer's step on.
  void update(double lr, const NextRadiusBatch& next_radius_batch = {});
  /// Forgets the batches so far.
  void skip();

  /// The loss that a method learns radii from, with its graph.
  at::Tensor radius_loss(const RadiusBatch& batch);

  /// How many kinds of steps (see StepPlan) are captured now.
  int64_t captured() const;
  /// Forgets the captures and gives their memory back; steps warm up anew.
  void forget();

 private:
  /// What a tensor must have in common with the one that was captured.
  struct Layout {
    explicit Layout(const at::Tensor& tensor);
    bool operator==(const Layout&) const = default;
    std::vector<int64_t> sizes, strides;
    at::ScalarType type;
  };
  using Layouts = std::vector<Layout>;
  /// A step in a graph, and where it reads radius data and leaves its result.
  struct Capture {
    CudaGraph graph;
    std::vector<RadiusBatch> radius_batches;
    Result result;
  };
  /// Of all steps of one kind.
  struct Kind {
    int64_t warm = 0;     // steps that ran as they are, one after the other with the same layouts
    Layouts radius_data;  // of their radius batches
    std::unique_ptr<Capture> capture;
  };
  /// Where a tensor is, and whether it trains: what a capture took for granted.
  using Place = std::pair<const void*, bool>;

  Result run(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);
  void average();
  void take_step(const Closure& radius_loss);
  Result replay(Kind& kind, const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets,
                const std::deque<RadiusBatch>& radius_batches);
  void follow_changes();

  Classifier& model_;
  Method& method_;
  Capturable* capturable_;  // the method, if it is that
  Optimizer& optimizer_;
  StepOptions options_;
  std::vector<at::Tensor> tensors_;  // parameters and buffers
  int64_t ran_ = 0;                  // batches since the last update

  std::map<int, Kind> kinds_;
  // Captures share their inputs and their memory: no two run at once.
  at::Tensor images_, labels_, targets_;
  std::shared_ptr<GraphMemory> memory_;
  Layouts data_;               // of the batches that are to be captured
  bool usual_ = false;         // the last backward()'s were like that
  std::vector<Place> places_;  // of tensors_, as they were at the last step
  int64_t generation_ = -1;    // of the optimizer's state, at the last step
};

/// train(), but for BatchNorms whose parameters are all frozen.
void train_mode(torch::nn::Module& module);

/// CLIP's, of images [n] and all texts: logits [n, texts], labels [n] say which text belongs to each image.
/// Half of it asks each image for its text among all; the other half asks each text that occurs in the batch
/// for its images among those of the batch, each of several counting alike. With one image for every text it
/// is Radford et al.'s. In fp32.
at::Tensor contrastive_loss(const at::Tensor& logits, const at::Tensor& labels);

/// Mean cross-entropy in fp32; targets as TrainingStep::backward takes them.
at::Tensor classification_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing = 0);

}  // namespace tpgm

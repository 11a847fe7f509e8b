// One step of training: forward, backward, the method's hooks, the optimizer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tpgm/methods/method.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/cuda_graph.h"
#include "tpgm/train/optim.h"

namespace tpgm {

struct StepOptions {
  /// bf16 by autocast; the parameters are fp32 masters.
  TORCH_ARG(bool, amp) = false;
  /// On CUDA, and with one batch a step, replay forward and backward from a graph where batches have one
  /// shape.
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

/// Refers to model, method and optimizer, which must outlive it. Nothing here waits for the device.
class TrainingStep {
 public:
  TrainingStep(Classifier& model, Method& method, Optimizer& optimizer, const StepOptions& options);

  struct Result {
    at::Tensor loss;   ///< mean over the batch, detached, on the device
    at::Tensor right;  ///< how many predictions are the label, on the device
  };
  /// Gradients of one of the step's batches, added to those before it. `labels` [n] are what predictions are
  /// compared with; the loss is that of `targets`: labels as numbers [n], or shares of classes [n, classes].
  ///
  /// Modules train, but for BatchNorms whose parameters are all frozen: what is frozen stays as it is.
  Result backward(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);
  /// The method's hooks around the optimizer's step, after all of the step's batches. Gradients are none
  /// then.
  void update(double lr, const Closure& radius_loss);
  /// Forgets the batches so far.
  void skip() { optimizer_.zero_grad(); }

 private:
  Result run(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);
  Result replay(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets);
  int64_t trainable() const;

  Classifier& model_;
  Method& method_;
  Optimizer& optimizer_;
  StepOptions options_;
  std::vector<at::Tensor> parameters_;

  // Of the graph: its inputs, its outputs, the gradients it writes.
  std::unique_ptr<CudaGraph> graph_;
  at::Tensor images_, labels_, targets_;
  Result result_;
  std::vector<at::Tensor> gradients_;
  int64_t warm_ = 0;        // steps that were not from a graph, since it had to be forgotten
  int64_t trainable_ = -1;  // parameters that train; when that changes, so does the step
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

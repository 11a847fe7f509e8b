// The table of training options. A key is both a recipe key and a flag of `tpgm train`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/base/byte_count.h"
#include "tpgm/core/device.h"
#include "tpgm/data/loader.h"
#include "tpgm/train/optimizer.h"
#include "tpgm/train/option_types.h"
#include "tpgm/train/schedule.h"

namespace tpgm {

/// Options as text, by their keys: "batch-size" → "256".
using Settings = std::map<std::string, std::string>;

struct TrainOptions {
  std::string model, checkpoint, head_name, classnames, templates, vocab, weights;
  std::optional<int64_t> image_size;
  HeadSource head;
  std::string data_dir, class_list;
  ScoredClasses classes = ScoredClasses::kAll;
  std::vector<std::string> train, test, id;
  std::string selection_part;
  double fraction = 1, radius_fraction = 0.1, selection_fraction = 0.1, test_fraction = 1;
  int64_t split_seed = 0;
  bool share_validation = false;

  std::string method = "ft";
  /// Options of the method, by the names in methods().
  std::map<std::string, std::string> method_options;

  int64_t epochs = 10, batch_size = 64, grad_accum_steps = 1;
  std::optional<int64_t> validation_batch_size, radius_batch_size;
  Opt opt = Opt::kAdamW;
  double lr = 1e-5, momentum = 0.9, opt_eps = 1e-8, weight_decay = 0, layer_decay = 1, clip_grad = 0;
  std::vector<double> opt_betas = {0.9, 0.999};
  HeadRate head_lr;
  std::optional<double> lp_lr;
  bool nesterov = true, decay_all = false;
  Sched sched = Sched::kCosine;
  bool sched_on_updates = true;
  double min_lr = 0, warmup_lr = 0, decay_rate = 0.1;
  int64_t warmup_epochs = 0, decay_epochs = 10;
  std::optional<int64_t> lp_epochs;
  double smoothing = 0, mixup = 0, cutmix = 0, mixup_prob = 1, mixup_switch_prob = 0.5;
  std::optional<double> radius_smoothing;
  std::optional<bool> radius_mix;
  bool model_ema = false;
  double model_ema_decay = 0.9998;
  bool model_ema_warmup = true;
  int64_t patience = 0;

  bool no_aug = false;
  std::vector<double> crop_scale = {0.08, 1}, crop_ratio = {0.75, 4.0 / 3};
  double hflip = 0.5;
  std::vector<double> affine, color_jitter, rand_augment;
  std::optional<Interpolation> interpolation;
  std::optional<double> crop_pct;
  std::vector<double> mean, std;
  Decode train_decode = Decode::kFast, decode = Decode::kExact;

  int64_t seed = 0;
  std::optional<c10::Device> device;  ///< none: CUDA if there is any
  bool amp = false;
  std::optional<bool> channels_last;
  bool cuda_graph = true, deterministic = false;
  int64_t workers = 0, max_pixels = 178956970;
  OnBadImage on_bad_image = OnBadImage::kError;
  ByteCount cache;
  OnNan on_nan = OnNan::kError;
  int64_t checkpoint_every = 0, log_every = 50;
  std::string output;

  /// Calls visit(group, key, traits, help, member of each `self`...) for every option, in the order of
  /// --help.
  template <class Visit, class... Self>
  static void fields(Visit&& visit, Self&... self) {
    using enum Trait;
    const char* g = "Model";
    visit(g, "model", kIdentity | kModel,
          "Name of a model in 'tpgm list models', or script:FILE; default: the checkpoint's own",
          self.model...);
    visit(g, "image-size", kIdentity | kModel,
          "Input image size in pixels, to which position embeddings are resized (auto: the model's)",
          self.image_size...);
    visit(g, "checkpoint", kIdentity | kModel | kPath,
          "Pre-trained checkpoint, which is the anchor: a file, folder or run of any layout; default: random "
          "weights",
          self.checkpoint...);
    visit(g, "head", kIdentity | kModel | kPath | kFineTuning,
          "Head: fresh (random weights), checkpoint (the checkpoint's own; a run's rows are matched by class "
          "name), zeroshot (from class names, by CLIP's text tower), text (recomputed from class names in "
          "every step, so that the text tower trains), a file of 'tpgm zeroshot', or auto (zeroshot for a "
          "whole CLIP if the class names are words, else fresh)",
          self.head...);
    visit(g, "head-name", kIdentity | kModel | kFineTuning,
          "Name of the layer that is the head, such as fc, in a script whose outputs are the logits (`head` "
          "checkpoint); default: its last layer, if that is linear",
          self.head_name...);
    visit(g, "classnames", kIdentity | kModel | kPath,
          "Class names in order for `head` zeroshot and text, as for 'tpgm zeroshot'; default: the folders' "
          "names, with spaces for _",
          self.classnames...);
    visit(g, "templates", kIdentity | kModel | kPath,
          "Templates for `head` zeroshot and text: a file with one sentence per line and {} for the class "
          "name, or one sentence; default: the checkpoint's own, or 'a photo of a {}.'",
          self.templates...);
    visit(g, "vocab", kIdentity | kModel | kPath,
          "Vocabulary for `head` zeroshot and text; default: the one beside the checkpoint, or byte-level if "
          "the "
          "model has 514 tokens",
          self.vocab...);
    visit(g, "weights", kIdentity | kPath | kPerRun | kFineTuning,
          "Initial weights, with `checkpoint` as the anchor: a file, folder or run; default: the anchor",
          self.weights...);
    g = "Data";
    visit(g, "data-dir", kIdentity | kData | kPath, "Data set, as for 'tpgm data check'", self.data_dir...);
    visit(g, "train", kIdentity | kData,
          "Domain to train on, or DOMAIN/SPLIT, or several of them; default: the only one", self.train...);
    visit(g, "test", kIdentity | kData,
          "Domains to test on, in addition to the training domains' test splits; NAME=PATH adds another data "
          "set, relative to the working folder (in a recipe: to its folder) or else to `data-dir`",
          self.test...);
    visit(g, "id", kIdentity | kData,
          "Tests that count as in-distribution; default: those of the training domains", self.id...);
    visit(g, "class-list", kIdentity | kData | kPath,
          "Classes in the order of the head: a file with one per line, or a folder of class folders; "
          "default: those of the data",
          self.class_list...);
    visit(g, "classes", kIdentity | kData,
          "Classes to score over: all, or subset (those that occur in each test, as for ImageNet-A, -R)",
          self.classes...);
    visit(g, "fraction", kIdentity | kData | kScaled, "Fraction of each class of the training domains to use",
          self.fraction...);
    visit(g, "radius-fraction", kIdentity | kData | kFineTuning,
          "Fraction of each training domain held out for learning radii, unless it has a split 'radius'",
          self.radius_fraction...);
    visit(g, "selection-fraction", kIdentity | kData,
          "Fraction of each training domain held out for selecting epochs and sweeps, unless it has a split "
          "'selection'",
          self.selection_fraction...);
    visit(g, "selection-part", kIdentity | kData,
          "One of the tests in `test`, whose images are the selection data instead; it is no test then",
          self.selection_part...);
    visit(g, "test-fraction", kIdentity | kData | kScaled, "Fraction of each test set to use",
          self.test_fraction...);
    visit(g, "split-seed", kIdentity | kData,
          "Random seed of the held-out splits; use the same for all runs that are compared",
          self.split_seed...);
    visit(g, "share-validation", kIdentity | kData | kFineTuning,
          "Use one held-out set for radii and selection, as the paper's authors did",
          self.share_validation...);
    g = "Method";
    visit(g, "method", kIdentity | kPerRun | kFineTuning, "Name of a method in 'tpgm list methods'",
          self.method...);
    g = "Optimization";
    visit(g, "epochs", kIdentity | kScaled,
          "Number of epochs to train (0: only finish the method and evaluate)", self.epochs...);
    visit(g, "batch-size", kIdentity, "Input batch size for training", self.batch_size...);
    visit(g, "validation-batch-size", kCircumstance, "Batch size for evaluation (auto: `batch-size`)",
          self.validation_batch_size...);
    visit(g, "radius-batch-size", kIdentity | kFineTuning,
          "Batch size for radius data (auto: a quarter of `batch-size`)", self.radius_batch_size...);
    visit(g, "grad-accum-steps", kIdentity, "Number of batches to accumulate gradients over",
          self.grad_accum_steps...);
    visit(g, "opt", kIdentity, "Optimizer: sgd, adam or adamw", self.opt...);
    visit(g, "lr", kIdentity, "Learning rate", self.lr...);
    visit(
        g, "head-lr", kIdentity | kFineTuning,
        "Learning rate of the head (lr: the same as `lr`; auto: `lr`, but at least 1e-3 for a fresh head on "
        "pre-trained weights)",
        self.head_lr...);
    visit(g, "layer-decay", kIdentity,
          "Layer-wise learning rate decay: factor from each block to the one before it", self.layer_decay...);
    visit(g, "momentum", kIdentity, "SGD momentum", self.momentum...);
    visit(g, "nesterov", kIdentity, "Nesterov momentum for SGD", self.nesterov...);
    visit(g, "opt-betas", kIdentity, "Adam/AdamW betas", self.opt_betas...);
    visit(g, "opt-eps", kIdentity, "Adam/AdamW epsilon", self.opt_eps...);
    visit(g, "weight-decay", kIdentity,
          "Weight decay; decoupled for adamw, added to the gradient for other optimizers",
          self.weight_decay...);
    visit(g, "decay-all", kIdentity, "Apply weight decay to biases and norms, too", self.decay_all...);
    visit(g, "clip-grad", kIdentity, "Clip gradient norm over all parameters (0: no clipping)",
          self.clip_grad...);
    visit(g, "sched", kIdentity, "Learning rate schedule: cosine, step or constant", self.sched...);
    visit(g, "sched-on-updates", kIdentity, "Update the learning rate at every step instead of every epoch",
          self.sched_on_updates...);
    visit(g, "min-lr", kIdentity, "Final learning rate of the cosine schedule", self.min_lr...);
    visit(g, "warmup-epochs", kIdentity | kScaledAway, "Epochs of linear warm-up from `warmup-lr` to `lr`",
          self.warmup_epochs...);
    visit(g, "warmup-lr", kIdentity, "Initial learning rate of the warm-up", self.warmup_lr...);
    visit(g, "decay-epochs", kIdentity | kScaled, "Epochs between decays of the step schedule",
          self.decay_epochs...);
    visit(g, "decay-rate", kIdentity, "Decay rate: learning rate factor of the step schedule",
          self.decay_rate...);
    visit(g, "lp-epochs", kIdentity | kPerRun | kFineTuning | kScaledAway,
          "lp-ft: epochs of linear probing, out of `epochs` (auto: half)", self.lp_epochs...);
    visit(g, "lp-lr", kIdentity | kPerRun | kFineTuning,
          "lp-ft: learning rate of linear probing (auto: `head-lr`)", self.lp_lr...);
    visit(g, "smoothing", kIdentity | kFineTuning, "Label smoothing", self.smoothing...);
    visit(g, "mixup", kIdentity | kFineTuning, "Mixup alpha (0: off)", self.mixup...);
    visit(g, "cutmix", kIdentity | kFineTuning, "CutMix alpha (0: off)", self.cutmix...);
    visit(g, "mixup-prob", kIdentity | kFineTuning, "Probability of mixup or CutMix for a batch",
          self.mixup_prob...);
    visit(g, "mixup-switch-prob", kIdentity | kFineTuning,
          "Probability of CutMix instead of mixup if both are enabled", self.mixup_switch_prob...);
    visit(g, "radius-smoothing", kIdentity | kFineTuning,
          "Label smoothing of the loss that radii are learned from (auto: `smoothing` if they are learned "
          "during training, 0 at the end)",
          self.radius_smoothing...);
    visit(
        g, "radius-mix", kIdentity | kFineTuning,
        "Apply mixup and CutMix to radius data, as to training data (auto: true if radii are learned during "
        "training, false at the end)",
        self.radius_mix...);
    visit(g, "model-ema", kIdentity,
          "Track the exponential moving average of the weights, and evaluate and keep it", self.model_ema...);
    visit(g, "model-ema-decay", kIdentity, "Decay factor of the moving average of the weights",
          self.model_ema_decay...);
    visit(g, "model-ema-warmup", kIdentity,
          "Warm up the decay of the moving average, as in timm, so that a short run's average is not mostly "
          "the pre-trained weights",
          self.model_ema_warmup...);
    visit(g, "patience", kIdentity | kScaled,
          "Stop after this many epochs without improvement on selection data (0: never)", self.patience...);
    g = "Images";
    visit(g, "no-aug", kIdentity, "Disable all training augmentation", self.no_aug...);
    visit(g, "crop-scale", kIdentity, "Random resized crop: range of the area fraction (timm: scale)",
          self.crop_scale...);
    visit(g, "crop-ratio", kIdentity, "Random resized crop: range of the aspect ratio (timm: ratio)",
          self.crop_ratio...);
    visit(g, "hflip", kIdentity, "Probability of a horizontal flip", self.hflip...);
    visit(g, "affine", kIdentity,
          "Random affine transform: degrees of rotation, and optionally the shift as a fraction of the image "
          "and the "
          "change of scale, such as 8,0.1,0.15",
          self.affine...);
    visit(
        g, "color-jitter", kIdentity,
        "Color jitter factors for brightness, contrast, saturation and hue; one number sets the first three",
        self.color_jitter...);
    visit(g, "rand-augment", kIdentity,
          "RandAugment: number of operations and magnitude (0 to 30; 9 if left out), such as 2,9",
          self.rand_augment...);
    visit(g, "interpolation", kIdentity | kImage,
          "Interpolation for resizing: bicubic or bilinear (auto: the checkpoint's own, or bicubic)",
          self.interpolation...);
    visit(g, "crop-pct", kIdentity | kImage,
          "Center crop fraction for evaluation (auto: the checkpoint's own, 1 for CLIP, 0.875 for other "
          "models)",
          self.crop_pct...);
    visit(
        g, "mean", kIdentity | kImage,
        "Mean pixel value in 0..1, one number or three; default: the checkpoint's own, CLIP's or ImageNet's",
        self.mean...);
    visit(g, "std", kIdentity | kImage,
          "Standard deviation of the pixels in 0..1, one number or three; default: the checkpoint's own, "
          "CLIP's or ImageNet's",
          self.std...);
    visit(g, "train-decode", kIdentity,
          "Image decoding for training: fast (DCT scaling) or exact (Pillow's pixels)", self.train_decode...);
    visit(g, "decode", kIdentity | kImage,
          "Image decoding for evaluation and radius data: exact (Pillow's pixels) or fast (DCT scaling)",
          self.decode...);
    g = "Machine";
    visit(g, "seed", kCircumstance | kPerRun,
          "Random seed of a fresh head, and of the order and augmentation of images", self.seed...);
    visit(g, "device", kCircumstance | kMachine, "Device: cpu, cuda or cuda:N (auto: cuda if available)",
          self.device...);
    visit(g, "amp", kIdentity, "Use AMP: compute in bf16 where that is safe; weights stay fp32", self.amp...);
    visit(g, "channels-last", kIdentity,
          "Use channels_last (NHWC) memory layout (auto: on for convolutional families)",
          self.channels_last...);
    visit(g, "cuda-graph", kCircumstance | kMachine,
          "On CUDA, capture the step in a CUDA graph and replay it", self.cuda_graph...);
    visit(g, "deterministic", kCircumstance,
          "On CUDA, use only deterministic kernels; on the CPU all kernels are deterministic",
          self.deterministic...);
    visit(g, "workers", kCircumstance | kMachine | kResumable | kImage,
          "Data loading threads (0: one per core)", self.workers...);
    visit(g, "max-pixels", kCircumstance | kImage, "Refuse images with more pixels than this",
          self.max_pixels...);
    visit(g, "on-bad-image", kCircumstance | kImage, "What to do on an unreadable image: error or skip",
          self.on_bad_image...);
    visit(g, "cache", kCircumstance | kMachine | kResumable,
          "Memory for caching decoded images, such as 4GB or 500MiB (0: no cache)", self.cache...);
    g = "Run";
    visit(g, "on-nan", kCircumstance,
          "What to do on a loss that is not finite: error, or skip (the step is left out and counted)",
          self.on_nan...);
    visit(g, "checkpoint-every", kCircumstance | kResumable,
          "Steps between checkpoints to resume from, in addition to one per epoch (0: none)",
          self.checkpoint_every...);
    visit(g, "log-every", kCircumstance | kResumable, "Steps between log lines", self.log_every...);
    visit(g, "output", kCircumstance | kPath | kPerRun, "Run folder to write, new or empty", self.output...);
  }
};

/// All keys: those of TrainOptions, then those of options of methods, with '-' instead of '_'.
std::vector<std::string> option_keys();
/// `key` with '-' instead of '_', which are the same in keys.
std::string option_key(std::string key);
/// What to do in place of the option `key`, which is none of `known`, as the end of a message: what timm,
/// open_clip or transformers call it has another name here ("; did you mean 'lr'?"), or is given in
/// another way (": the classes are the folders of the data"); else as did_you_mean(). `prefix` as there.
std::string option_hint(const std::string& key, const std::vector<std::string>& known,
                        const std::string& prefix = "");

/// True if the option has any of the traits. Options of methods have kIdentity, kPerRun and kFineTuning; an
/// unknown key has no traits.
bool has_trait(const std::string& key, Trait traits);
/// The keys of all options with any of the traits.
std::vector<std::string> keys_with(Trait traits);
/// The settings whose keys have any of the traits, and those whose keys have none of them.
Settings only(const Settings& settings, Trait traits);
Settings without(const Settings& settings, Trait traits);

/// True if the value of the key is a path. The value of `head` is a file or a keyword, that of `templates` a
/// file or a sentence.
bool is_path(const std::string& key, const std::string& value);

/// The defaults, overridden by `settings`. Throws, naming the key, for unknown keys, for values of another
/// type or out of range, and for options that the method does not have (naming the methods that do).
TrainOptions make_options(const Settings& settings);
/// Throws, naming the key, for values that make_options() takes because older runs have them, but that are a
/// mistake in a new run: a mean or std for pixels from 0 to 255.
void check_new_run(const TrainOptions& options);
/// The inverse of make_options(): all keys, and the options of the method that were given.
Settings to_settings(const TrainOptions& options);

/// Gives the options of the method that were not given their defaults, except those that the loop sets.
void add_method_defaults(TrainOptions& options);

}  // namespace tpgm

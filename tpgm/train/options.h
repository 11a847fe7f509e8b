// Everything a training run can be told, in one table: the keys of recipes are the flags of `tpgm train`.
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
#include "tpgm/train/optim.h"
#include "tpgm/train/option_types.h"
#include "tpgm/train/schedule.h"

namespace tpgm {

/// Options as text, by their keys: "batch-size" → "256".
using Settings = std::map<std::string, std::string>;

struct TrainOptions {
  std::string model, checkpoint, classnames, templates, vocab, weights;
  HeadSource head;
  std::string data_dir, train, class_list;
  ScoredClasses classes = ScoredClasses::kAll;
  std::vector<std::string> test, id;
  double fraction = 1, radius_fraction = 0.1, selection_fraction = 0.1, test_fraction = 1;
  int64_t split_seed = 0;
  bool share_validation = false;

  std::string method = "ft";
  /// Of the method, by the names that methods() lists.
  std::map<std::string, std::string> method_options;

  int64_t epochs = 10, batch_size = 64, grad_accum_steps = 1;
  std::optional<int64_t> validation_batch_size, radius_batch_size;
  Opt opt = Opt::kAdamW;
  double lr = 1e-5, momentum = 0.9, opt_eps = 1e-8, weight_decay = 0, layer_decay = 1, clip_grad = 0;
  std::vector<double> opt_betas = {0.9, 0.999};
  std::optional<double> head_lr, lp_lr;
  bool nesterov = true, decay_all = false;
  Sched sched = Sched::kCosine;
  bool sched_on_updates = true;
  double min_lr = 0, warmup_lr = 0, decay_rate = 0.1;
  int64_t warmup_epochs = 0, decay_epochs = 10;
  std::optional<int64_t> lp_epochs;
  double smoothing = 0, mixup = 0, cutmix = 0, mixup_prob = 1, mixup_switch_prob = 0.5;
  bool model_ema = false;
  double model_ema_decay = 0.9998;
  bool model_ema_warmup = true;
  int64_t patience = 0;

  bool no_aug = false;
  std::vector<double> crop_scale = {0.08, 1}, crop_ratio = {0.75, 4.0 / 3};
  double hflip = 0.5;
  std::vector<double> color_jitter, rand_augment;
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

  /// Calls visit(group, key, traits, help, member of each options...) for each, in the order of --help.
  template <class Visit, class... Self>
  static void fields(Visit&& visit, Self&... self) {
    using enum Trait;
    const char* g = "Model";
    visit(g, "model", kIdentity | kModel,
          "A name of 'tpgm list models', or script:FILE; default: as the checkpoint says", self.model...);
    visit(g, "checkpoint", kIdentity | kModel | kPath,
          "The pre-trained weights, which are the anchor: a file, folder or run, of any layout; none: drawn "
          "from the seed",
          self.checkpoint...);
    visit(
        g, "head", kIdentity | kModel | kPath | kFineTuning,
        "fresh; checkpoint (its own; of a run the rows of the classes by name); zeroshot (from text, by "
        "CLIP's other tower); text (the same anew in every step, and the other tower trains, too); or a file "
        "of 'tpgm zeroshot'",
        self.head...);
    visit(g, "classnames", kIdentity | kModel | kPath,
          "Of zeroshot and text: what the classes are called, in their order, as 'tpgm zeroshot' takes them; "
          "default: as their folders, with spaces for _",
          self.classnames...);
    visit(
        g, "templates", kIdentity | kModel | kPath,
        "Of zeroshot and text: a file with a sentence a line and {} for the class, or one sentence; default: "
        "the checkpoint's own, or 'a photo of a {}.'",
        self.templates...);
    visit(g, "vocab", kIdentity | kModel | kPath,
          "Of zeroshot and text: the vocabulary; default: beside the checkpoint, or bytes for a model of 514 "
          "tokens",
          self.vocab...);
    visit(g, "weights", kIdentity | kPath | kPerRun | kFineTuning,
          "Start from these and keep `checkpoint` as the anchor: a file, folder or run", self.weights...);
    g = "Data";
    visit(g, "data-dir", kIdentity | kData | kPath, "The data set, as 'tpgm data check' takes it",
          self.data_dir...);
    visit(g, "train", kIdentity | kData,
          "The domain to train on, or DOMAIN/SPLIT; may be left out if there is one", self.train...);
    visit(g, "test", kIdentity | kData,
          "Domains to test on beside the training domain's own test; NAME=PATH: another data set, relative "
          "to `data-dir`",
          self.test...);
    visit(g, "id", kIdentity | kData,
          "Tests that count as in-distribution; default: the training domain's own", self.id...);
    visit(g, "class-list", kIdentity | kData | kPath,
          "The classes in the head's order: a file, one a line, or a folder of class folders; default: the "
          "data's",
          self.class_list...);
    visit(g, "classes", kIdentity | kData,
          "Score tests over all classes, or over the subset that occurs in them (ImageNet-A, -R)",
          self.classes...);
    visit(g, "fraction", kIdentity | kData | kScaled,
          "Of each class of the training domain, how much is used at all", self.fraction...);
    visit(g, "radius-fraction", kIdentity | kData | kFineTuning,
          "Share of the training domain held out to learn radii from, unless it has a part 'radius'",
          self.radius_fraction...);
    visit(g, "selection-fraction", kIdentity | kData,
          "Share held out to choose epochs and sweeps by, unless it has a part 'selection'",
          self.selection_fraction...);
    visit(g, "test-fraction", kIdentity | kData | kScaled, "Of each test, how much is used",
          self.test_fraction...);
    visit(g, "split-seed", kIdentity | kData, "Of what is held out; the same for all runs that are compared",
          self.split_seed...);
    visit(g, "share-validation", kIdentity | kData | kFineTuning,
          "Learn radii and select on one and the same held-out set, as the paper's authors did",
          self.share_validation...);
    g = "Method";
    visit(g, "method", kIdentity | kPerRun | kFineTuning, "A name of 'tpgm list methods'", self.method...);
    g = "Optimization";
    visit(g, "epochs", kIdentity | kScaled,
          "Passes over the training data; 0: evaluate, and let the method do what it does at the end",
          self.epochs...);
    visit(g, "batch-size", kIdentity, "Pictures of a batch", self.batch_size...);
    visit(g, "validation-batch-size", kCircumstance, "Of evaluation; auto: as in training",
          self.validation_batch_size...);
    visit(g, "radius-batch-size", kIdentity | kFineTuning,
          "Of radius data; auto: a quarter of the training batch", self.radius_batch_size...);
    visit(g, "grad-accum-steps", kIdentity, "Batches of one optimizer step", self.grad_accum_steps...);
    visit(g, "opt", kIdentity, "sgd, adam or adamw", self.opt...);
    visit(g, "lr", kIdentity, "Learning rate", self.lr...);
    visit(g, "head-lr", kIdentity | kFineTuning, "Of the head; auto: as the rest", self.head_lr...);
    visit(g, "layer-decay", kIdentity, "Factor on the rate from each block to the one before it",
          self.layer_decay...);
    visit(g, "momentum", kIdentity, "Of sgd", self.momentum...);
    visit(g, "nesterov", kIdentity, "Nesterov's momentum, of sgd", self.nesterov...);
    visit(g, "opt-betas", kIdentity, "Of adam and adamw", self.opt_betas...);
    visit(g, "opt-eps", kIdentity, "Of adam and adamw", self.opt_eps...);
    visit(g, "weight-decay", kIdentity, "Decoupled with adamw, part of the gradient with others",
          self.weight_decay...);
    visit(g, "decay-all", kIdentity, "Weight decay on biases and norms, too", self.decay_all...);
    visit(g, "clip-grad", kIdentity, "Largest norm of the gradient of all parameters together; 0: any",
          self.clip_grad...);
    visit(g, "sched", kIdentity, "cosine, step or constant", self.sched...);
    visit(g, "sched-on-updates", kIdentity, "The rate changes at every step; off: at every epoch",
          self.sched_on_updates...);
    visit(g, "min-lr", kIdentity, "Where cosine ends", self.min_lr...);
    visit(g, "warmup-epochs", kIdentity | kScaledAway, "From `warmup-lr` up to `lr` in a line",
          self.warmup_epochs...);
    visit(g, "warmup-lr", kIdentity, "Where the warm-up begins", self.warmup_lr...);
    visit(g, "decay-epochs", kIdentity | kScaled, "Of step: how long a rate stays", self.decay_epochs...);
    visit(g, "decay-rate", kIdentity, "Of step: what it is multiplied by", self.decay_rate...);
    visit(g, "lp-epochs", kIdentity | kPerRun | kFineTuning | kScaledAway,
          "Of lp-ft: epochs of linear probing, counted in `epochs`; auto: half", self.lp_epochs...);
    visit(g, "lp-lr", kIdentity | kPerRun | kFineTuning, "Of lp-ft: rate while probing; auto: `lr`",
          self.lp_lr...);
    visit(g, "smoothing", kIdentity | kFineTuning, "Of labels", self.smoothing...);
    visit(g, "mixup", kIdentity | kFineTuning, "Alpha of mixup; 0: none", self.mixup...);
    visit(g, "cutmix", kIdentity | kFineTuning, "Alpha of cutmix; 0: none", self.cutmix...);
    visit(g, "mixup-prob", kIdentity | kFineTuning, "Probability that a batch is mixed", self.mixup_prob...);
    visit(g, "mixup-switch-prob", kIdentity | kFineTuning, "Of cutmix, where both are on",
          self.mixup_switch_prob...);
    visit(g, "model-ema", kIdentity,
          "Average the weights over steps; the average is what is evaluated and kept", self.model_ema...);
    visit(g, "model-ema-decay", kIdentity, "How much of the average stays at each step",
          self.model_ema_decay...);
    visit(g, "model-ema-warmup", kIdentity,
          "Begin with a small decay, as timm's flag of this name: the average of a short run is then one of "
          "what was trained, and not mostly of the pre-trained weights",
          self.model_ema_warmup...);
    visit(g, "patience", kIdentity | kScaled,
          "Stop after so many epochs without a better one on selection data; 0: never", self.patience...);
    g = "Pictures";
    visit(g, "no-aug", kIdentity, "Train on the pictures as evaluation sees them", self.no_aug...);
    visit(g, "crop-scale", kIdentity,
          "Of random crops: share of the area (timm's `scale`, which is a method's word here)",
          self.crop_scale...);
    visit(g, "crop-ratio", kIdentity, "Of random crops: width / height", self.crop_ratio...);
    visit(g, "hflip", kIdentity, "Probability of a horizontal flip", self.hflip...);
    visit(g, "color-jitter", kIdentity,
          "Strengths of brightness, contrast, saturation and hue; one number: of the first three",
          self.color_jitter...);
    visit(g, "rand-augment", kIdentity, "Number of operations and magnitude (0 to 30): 2,9",
          self.rand_augment...);
    visit(g, "interpolation", kIdentity | kImage,
          "bicubic or bilinear; auto: the checkpoint's own, or bicubic", self.interpolation...);
    visit(g, "crop-pct", kIdentity | kImage,
          "Of evaluation: part of the resized shorter side that is kept; auto: the checkpoint's own, 1 for "
          "CLIP, 0.875 for others",
          self.crop_pct...);
    visit(g, "mean", kIdentity | kImage,
          "Of the pixels in 0..1, one number or three; default: the checkpoint's own, CLIP's or ImageNet's",
          self.mean...);
    visit(g, "std", kIdentity | kImage,
          "Of the pixels in 0..1, one number or three; default: the checkpoint's own, CLIP's or ImageNet's",
          self.std...);
    visit(g, "train-decode", kIdentity, "fast (DCT scaling) or exact (Pillow's pixels)",
          self.train_decode...);
    visit(g, "decode", kIdentity | kImage, "The same for all other pictures", self.decode...);
    g = "Machine";
    visit(g, "seed", kCircumstance | kPerRun,
          "Of a fresh head, of the order and the augmentation of pictures", self.seed...);
    visit(g, "device", kCircumstance | kMachine, "auto (cuda if there is one), cpu, cuda or cuda:N",
          self.device...);
    visit(g, "amp", kIdentity, "Compute in bf16 where that is safe; weights stay fp32", self.amp...);
    visit(g, "channels-last", kIdentity, "Pictures and convolutions as NHWC; auto: on for ResNets",
          self.channels_last...);
    visit(g, "cuda-graph", kCircumstance | kMachine, "Record the step once and replay it, on CUDA",
          self.cuda_graph...);
    visit(g, "deterministic", kCircumstance,
          "On CUDA, only kernels that give the same bits each time; the CPU's always do",
          self.deterministic...);
    visit(g, "workers", kCircumstance | kMachine | kResumable | kImage,
          "Threads that read and decode; 0: one for each core", self.workers...);
    visit(g, "max-pixels", kCircumstance | kImage, "Refuse pictures that claim more", self.max_pixels...);
    visit(g, "on-bad-image", kCircumstance | kImage, "A picture that cannot be read: error, or skip",
          self.on_bad_image...);
    visit(g, "cache", kCircumstance | kMachine | kResumable,
          "Keep decoded pictures in memory, up to this: 4GB, 500MiB; 0: do not", self.cache...);
    g = "Run";
    visit(g, "on-nan", kCircumstance, "A loss that is not finite: error, or skip the step and count it",
          self.on_nan...);
    visit(g, "checkpoint-every", kCircumstance | kResumable,
          "Steps between checkpoints to resume from, beside one at each epoch; 0: only those",
          self.checkpoint_every...);
    visit(g, "log-every", kCircumstance | kResumable, "Steps between lines of the log", self.log_every...);
    visit(g, "output", kCircumstance | kPath | kPerRun, "The run folder to write, new or empty",
          self.output...);
  }
};

/// All keys: options, then those that only methods have, with '-' for '_'.
std::vector<std::string> option_keys();
/// `key` with '-' for '_', which are the same in keys.
std::string option_key(std::string key);
/// What was meant by a key that is not among `known`: what other trainers call it, or else the nearest.
std::string nearest_option(std::string key, const std::vector<std::string>& known);

/// True if the option has any of the traits. Options of methods are kIdentity, kPerRun and kFineTuning; what
/// is no key has none.
bool has_trait(const std::string& key, Trait traits);
/// Those of option_keys() that have any of the traits.
std::vector<std::string> keys_with(Trait traits);
/// The settings whose keys have any of the traits, and the others.
Settings only(const Settings& settings, Trait traits);
Settings without(const Settings& settings, Trait traits);

/// True if a key's value is the path of something, which it may not be: `head` is a file or a keyword,
/// `templates` a file or a sentence.
bool is_path(const std::string& key, const std::string& value);

/// Defaults, and `settings` over them. Throws, with the key, for unknown ones, values of another type or out
/// of range, and options that the method does not have (naming those that do).
TrainOptions make_options(const Settings& settings);
/// The inverse: every key, and the method's options that were given.
Settings to_settings(const TrainOptions& options);

}  // namespace tpgm

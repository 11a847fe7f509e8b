// Everything a training run can be told, in one table: the keys of recipes are the flags of `tpgm train`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/methods/options.h"

namespace tpgm {

/// Options as text, by their keys: "batch-size" → "256".
using Settings = std::map<std::string, std::string>;

struct TrainOptions {
  std::string model, checkpoint, head = "fresh", classnames, templates, vocab, weights;
  std::string data_dir, train, class_list, classes = "all";
  std::vector<std::string> test, id;
  double fraction = 1, radius_fraction = 0.1, selection_fraction = 0.1, test_fraction = 1;
  int64_t split_seed = 0;
  bool share_validation = false;

  std::string method = "ft";
  /// Of the method, by the names that methods() lists.
  std::map<std::string, std::string> method_options;

  int64_t epochs = 10, batch_size = 64, grad_accum_steps = 1;
  std::optional<int64_t> validation_batch_size, radius_batch_size;
  std::string opt = "adamw";
  double lr = 1e-5, momentum = 0.9, opt_eps = 1e-8, weight_decay = 0, layer_decay = 1, clip_grad = 0;
  std::vector<double> opt_betas = {0.9, 0.999};
  std::optional<double> head_lr, lp_lr;
  bool nesterov = true, decay_all = false;
  std::string sched = "cosine";
  bool sched_on_updates = true;
  double min_lr = 0, warmup_lr = 0, decay_rate = 0.1;
  int64_t warmup_epochs = 0, decay_epochs = 10;
  std::optional<int64_t> lp_epochs;
  double smoothing = 0, mixup = 0, cutmix = 0, mixup_prob = 1, mixup_switch_prob = 0.5;
  bool model_ema = false;
  double model_ema_decay = 0.9998;
  int64_t patience = 0;

  bool no_aug = false;
  std::vector<double> crop_scale = {0.08, 1}, crop_ratio = {0.75, 4.0 / 3};
  double hflip = 0.5;
  std::vector<double> color_jitter, rand_augment;
  std::optional<std::string> interpolation;
  std::optional<double> crop_pct;
  std::vector<double> mean, std;
  std::string train_decode = "fast", decode = "exact";

  int64_t seed = 0;
  std::string device = "auto";
  bool amp = false;
  std::optional<bool> channels_last;
  bool cuda_graph = true, deterministic = false;
  int64_t workers = 0, max_pixels = 178956970;
  std::string on_bad_image = "error", cache = "0", on_nan = "error";
  int64_t checkpoint_every = 0, log_every = 50;
  std::string output;

  /// Calls visit(group, key, member of each options..., help) for each, in the order of --help.
  template <class Visit, class... Self>
  static void fields(Visit&& visit, Self&... self) {
    const char* g = "Model";
    visit(g, "model",
          "Name of a model in 'tpgm list models', or script:FILE; default: as the checkpoint says",
          self.model...);
    visit(g, "checkpoint",
          "Pre-trained checkpoint, which is the anchor: a file, folder or run of any layout; default: random "
          "weights",
          self.checkpoint...);
    visit(g, "head",
          "Head: fresh (random weights), checkpoint (its own; from a run, the rows of the classes by name), "
          "zeroshot (from class names, by CLIP's text tower), text (the same in every step, with the text "
          "tower training, too), or a file of 'tpgm zeroshot'",
          self.head...);
    visit(g, "classnames",
          "Class names in order for `head` zeroshot and text, as for 'tpgm zeroshot'; default: the folders' "
          "names, with spaces for _",
          self.classnames...);
    visit(g, "templates",
          "Templates for `head` zeroshot and text: a file with one sentence per line and {} for the class "
          "name, or one sentence; default: the checkpoint's own, or 'a photo of a {}.'",
          self.templates...);
    visit(g, "vocab",
          "Vocabulary for `head` zeroshot and text; default: the one beside the checkpoint, or bytes for a "
          "model with 514 tokens",
          self.vocab...);
    visit(g, "weights",
          "Initial weights, with `checkpoint` as the anchor: a file, folder or run; default: the anchor",
          self.weights...);
    g = "Data";
    visit(g, "data-dir", "Data set, as for 'tpgm data check'", self.data_dir...);
    visit(g, "train", "Domain to train on, or DOMAIN/SPLIT; default: the only one", self.train...);
    visit(g, "test",
          "Domains to test on, in addition to the training domain's test split; NAME=PATH adds another data "
          "set, relative to `data-dir`",
          self.test...);
    visit(g, "id", "Tests that count as in-distribution; default: the training domain's", self.id...);
    visit(g, "class-list",
          "Classes in the order of the head: a file with one per line, or a folder of class folders; "
          "default: the data's",
          self.class_list...);
    visit(g, "classes",
          "Score tests over all classes, or over the subset that occurs in each (ImageNet-A, -R)",
          self.classes...);
    visit(g, "fraction", "Fraction of each class of the training domain to use", self.fraction...);
    visit(g, "radius-fraction",
          "Fraction of the training domain held out for learning radii, unless it has a split 'radius'",
          self.radius_fraction...);
    visit(g, "selection-fraction",
          "Fraction of the training domain held out for selecting epochs and sweeps, unless it has a split "
          "'selection'",
          self.selection_fraction...);
    visit(g, "test-fraction", "Fraction of each test set to use", self.test_fraction...);
    visit(g, "split-seed", "Random seed of the held-out splits; use the same for all runs that are compared",
          self.split_seed...);
    visit(g, "share-validation", "Use one held-out set for radii and selection, as the paper's authors did",
          self.share_validation...);
    g = "Method";
    visit(g, "method", "Name of a method in 'tpgm list methods'", self.method...);
    g = "Optimization";
    visit(g, "epochs", "Number of epochs to train (0: only finish the method and evaluate)", self.epochs...);
    visit(g, "batch-size", "Input batch size for training", self.batch_size...);
    visit(g, "validation-batch-size", "Batch size for evaluation (auto: `batch-size`)",
          self.validation_batch_size...);
    visit(g, "radius-batch-size", "Batch size for radius data (auto: a quarter of `batch-size`)",
          self.radius_batch_size...);
    visit(g, "grad-accum-steps", "Number of batches to accumulate gradients over", self.grad_accum_steps...);
    visit(g, "opt", "Optimizer: sgd, adam or adamw", self.opt...);
    visit(g, "lr", "Learning rate", self.lr...);
    visit(g, "head-lr", "Learning rate of the head (auto: `lr`)", self.head_lr...);
    visit(g, "layer-decay", "Layer-wise learning rate decay: factor from each block to the one before it",
          self.layer_decay...);
    visit(g, "momentum", "SGD momentum", self.momentum...);
    visit(g, "nesterov", "Nesterov momentum for SGD", self.nesterov...);
    visit(g, "opt-betas", "Adam/AdamW betas", self.opt_betas...);
    visit(g, "opt-eps", "Adam/AdamW epsilon", self.opt_eps...);
    visit(g, "weight-decay", "Weight decay; decoupled for adamw, added to the gradient for other optimizers",
          self.weight_decay...);
    visit(g, "decay-all", "Apply weight decay to biases and norms, too", self.decay_all...);
    visit(g, "clip-grad", "Clip gradient norm over all parameters (0: no clipping)", self.clip_grad...);
    visit(g, "sched", "Learning rate schedule: cosine, step or constant", self.sched...);
    visit(g, "sched-on-updates", "Update the learning rate at every step instead of every epoch",
          self.sched_on_updates...);
    visit(g, "min-lr", "Final learning rate of the cosine schedule", self.min_lr...);
    visit(g, "warmup-epochs", "Epochs of linear warm-up from `warmup-lr` to `lr`", self.warmup_epochs...);
    visit(g, "warmup-lr", "Initial learning rate of the warm-up", self.warmup_lr...);
    visit(g, "decay-epochs", "Epochs between decays of the step schedule", self.decay_epochs...);
    visit(g, "decay-rate", "Learning rate factor of the step schedule", self.decay_rate...);
    visit(g, "lp-epochs", "lp-ft: epochs of linear probing, out of `epochs` (auto: half)", self.lp_epochs...);
    visit(g, "lp-lr", "lp-ft: learning rate of linear probing (auto: `lr`)", self.lp_lr...);
    visit(g, "smoothing", "Label smoothing", self.smoothing...);
    visit(g, "mixup", "Mixup alpha (0: no mixup)", self.mixup...);
    visit(g, "cutmix", "CutMix alpha (0: no CutMix)", self.cutmix...);
    visit(g, "mixup-prob", "Probability of mixup or CutMix for a batch", self.mixup_prob...);
    visit(g, "mixup-switch-prob", "Probability of CutMix instead of mixup if both are enabled",
          self.mixup_switch_prob...);
    visit(g, "model-ema", "Track the exponential moving average of the weights, and evaluate and keep it",
          self.model_ema...);
    visit(g, "model-ema-decay", "Decay factor of the moving average of the weights", self.model_ema_decay...);
    visit(g, "patience", "Stop after this many epochs without improvement on selection data (0: never)",
          self.patience...);
    g = "Images";
    visit(g, "no-aug", "Disable all training augmentation", self.no_aug...);
    visit(g, "crop-scale", "Random resized crop: range of the area fraction (--scale in timm)",
          self.crop_scale...);
    visit(g, "crop-ratio", "Random resized crop: range of the aspect ratio (--ratio in timm)",
          self.crop_ratio...);
    visit(g, "hflip", "Probability of a horizontal flip", self.hflip...);
    visit(
        g, "color-jitter",
        "Color jitter factors for brightness, contrast, saturation and hue; one number sets the first three",
        self.color_jitter...);
    visit(g, "rand-augment", "RandAugment: number of operations and magnitude (0 to 30), such as 2,9",
          self.rand_augment...);
    visit(g, "interpolation",
          "Interpolation for resizing: bicubic or bilinear (auto: the checkpoint's own, or bicubic)",
          self.interpolation...);
    visit(g, "crop-pct",
          "Center crop fraction for evaluation (auto: the checkpoint's own, 1 for CLIP, 0.875 for other "
          "models)",
          self.crop_pct...);
    visit(
        g, "mean",
        "Mean pixel value in 0..1, one number or three; default: the checkpoint's own, CLIP's or ImageNet's",
        self.mean...);
    visit(g, "std",
          "Standard deviation of the pixels in 0..1, one number or three; default: the checkpoint's own, "
          "CLIP's or ImageNet's",
          self.std...);
    visit(g, "train-decode", "Image decoding for training: fast (DCT scaling) or exact (Pillow's pixels)",
          self.train_decode...);
    visit(g, "decode",
          "Image decoding for evaluation and radius data: exact (Pillow's pixels) or fast (DCT scaling)",
          self.decode...);
    g = "Machine";
    visit(g, "seed", "Random seed of a fresh head, and of the order and augmentation of images",
          self.seed...);
    visit(g, "device", "Device: cpu, cuda or cuda:N (auto: cuda if available)", self.device...);
    visit(g, "amp", "Use AMP: compute in bf16 where that is safe; weights stay fp32", self.amp...);
    visit(g, "channels-last", "Use channels_last (NHWC) memory layout (auto: on for ResNets)",
          self.channels_last...);
    visit(g, "cuda-graph", "On CUDA, capture the step in a CUDA graph and replay it", self.cuda_graph...);
    visit(g, "deterministic", "On CUDA, use only deterministic kernels; those of the CPU always are",
          self.deterministic...);
    visit(g, "workers", "Data loading threads (0: one per core)", self.workers...);
    visit(g, "max-pixels", "Refuse images with more pixels than this", self.max_pixels...);
    visit(g, "on-bad-image", "On an unreadable image: error or skip", self.on_bad_image...);
    visit(g, "cache", "Cache decoded images in memory, up to this size: 4GB, 500MiB (0: no cache)",
          self.cache...);
    g = "Run";
    visit(g, "on-nan", "On a loss that is not finite: error, or skip the step and count it", self.on_nan...);
    visit(g, "checkpoint-every",
          "Steps between checkpoints to resume from, in addition to one per epoch (0: none)",
          self.checkpoint_every...);
    visit(g, "log-every", "Steps between log lines", self.log_every...);
    visit(g, "output", "Run folder to write, new or empty", self.output...);
  }
};

/// A recipe: flat TOML whose keys are those above, the method's options, and four of its own.
struct Recipe {
  Settings settings;
  std::vector<std::string> sweep;  ///< "lr=1e-3,1e-2": values to try of a key
  std::vector<std::string> seeds;
  std::vector<std::string> take;  ///< of tables: "lr=ft.lr", "weights=ft": from the best run of another row
};

/// Reads a recipe. `base = "common.toml"` takes over what that recipe says and this one does not. Paths are
/// relative to the recipe's folder. '_' and '-' are the same in keys. Throws, naming file and key, with the
/// nearest, for what is unknown, said twice or of another type.
Recipe load_recipe(const std::filesystem::path& file);

/// True if a key's value is the path of something.
bool is_path(const std::string& key, const std::string& value);

/// All keys: options, then those that only methods have, with '-' for '_'.
std::vector<std::string> option_keys();
/// What was meant by a key that is not among `known`: what other trainers call it, or else the nearest.
std::string nearest_option(std::string key, const std::vector<std::string>& known);
/// Of option_keys(), those that only methods have.
std::vector<std::string> method_keys();

/// Defaults, and `settings` over them. Throws, with the key, for unknown ones, values of another type or out
/// of range, and options that the method does not have (naming those that do).
TrainOptions make_options(const Settings& settings);

/// As a recipe that load_recipe reads: every key, whatever its value. Paths are written as they are.
std::string to_toml(const TrainOptions& options);

}  // namespace tpgm

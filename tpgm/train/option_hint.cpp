// Options of other trainers, and what to do here.
#include <fmt/format.h>

#include <algorithm>

#include "tpgm/base/names.h"
#include "tpgm/train/options.h"

namespace tpgm {
namespace {

struct OtherName {
  const char* name;    // in timm, open_clip or transformers
  const char* target;  // the option here; the row only applies to commands that have it
  const char* advice;  // in place of "did you mean"
};

constexpr const char* kNoDropout = "no model here has dropout";
constexpr const char* kNoDropPath = "no model here has stochastic depth";

constexpr OtherName kOtherNames[] = {
    // the same by another name
    {"learning-rate", "lr", nullptr},
    {"model-name-or-path", "checkpoint", nullptr},
    {"initial-checkpoint", "checkpoint", nullptr},
    {"output-dir", "output", nullptr},
    {"num-workers", "workers", nullptr},
    {"optimizer", "opt", nullptr},
    {"scheduler", "sched", nullptr},
    {"lr-scheduler-type", "sched", nullptr},
    {"wd", "weight-decay", nullptr},
    {"data", "data-dir", nullptr},
    {"data-path", "data-dir", nullptr},
    {"dataset", "data-dir", nullptr},
    {"train-data", "data-dir", nullptr},
    {"gpu", "device", nullptr},
    {"bf16", "amp", nullptr},
    {"fp16", "amp", nullptr},
    {"precision", "amp", nullptr},
    {"label-smoothing", "smoothing", nullptr},
    {"bs", "batch-size", nullptr},
    {"per-device-train-batch-size", "batch-size", nullptr},
    {"num-train-epochs", "epochs", nullptr},
    {"gradient-accumulation-steps", "grad-accum-steps", nullptr},
    {"accum-freq", "grad-accum-steps", nullptr},
    {"max-grad-norm", "clip-grad", nullptr},
    {"log-interval", "log-every", nullptr},
    {"print-freq", "log-every", nullptr},
    {"recovery-interval", "checkpoint-every", nullptr},
    {"class-map", "class-list", nullptr},
    {"alpha", "ratio", nullptr},
    {"img-size", "image-size", nullptr},
    {"input-size", "image-size", nullptr},
    // the same in other words
    {"lr-base", "lr", "`lr` is the learning rate itself, which does not grow with the batch size"},
    {"pretrained", "checkpoint", "pre-trained weights are a file or folder: `checkpoint` FILE"},
    {"num-classes", "data-dir", "the classes are the folders of `data-dir`"},
    {"freeze", "method",
     "`method` chooses what trains: lp (the head), bitfit (biases and the head) or pf (BatchNorm and the "
     "head)"},
    {"aa", "rand-augment", "RandAugment is `rand-augment` OPERATIONS,MAGNITUDE, such as 2,9"},
    {"amp-dtype", "amp", "`amp` computes in bf16, and there is no other type"},
    {"val-split", "test",
     "`test` takes DOMAIN/SPLIT, and `selection-fraction` holds out data for selecting epochs"},
    {"train-split", "train", "`train` takes DOMAIN/SPLIT"},
    {"log-wandb", "output", "TensorBoard events are written to the run folder"},
    {"report-to", "output", "TensorBoard events are always written to the run folder"},
    // not there
    {"drop", "method", kNoDropout},
    {"dropout", "method", kNoDropout},
    {"drop-path", "method", kNoDropPath},
    {"drop-connect", "method", kNoDropPath},
    {"reprob", "rand-augment", "there is no random erasing here; `rand-augment` and `cutmix` are"},
};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string option_hint(const std::string& key, const std::vector<std::string>& known,
                        const std::string& prefix) {
  const std::string word = option_key(key);
  std::vector<std::string> near = known;
  for (const auto& other : kOtherNames) {
    if (contains(known, other.target) && !contains(near, other.name)) near.emplace_back(other.name);
  }
  const std::string meant = nearest(word, near);
  for (const auto& other : kOtherNames) {
    if (meant != other.name || contains(known, meant) || !contains(known, other.target)) continue;
    // Advice is only for the word itself; after another word it would be a riddle.
    if (other.advice == nullptr) return did_you_mean(other.target, {other.target}, prefix);
    return word == meant ? fmt::format(": {}", other.advice) : did_you_mean(word, known, prefix);
  }
  return did_you_mean(word, known, prefix);
}

}  // namespace tpgm

// The parts of a run, put together, and what was left open decided.
#include "tpgm/train/setup.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/numbers.h"
#include "tpgm/core/device.h"
#include "tpgm/methods/registry.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"
#include "tpgm/train/radius_loss.h"
#include "tpgm/train/test_paths.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// With the method's own options as text, and everything that has no pre-trained values left unconstrained.
std::unique_ptr<Method> make_configured_method(const TrainOptions& options, Classifier& model) {
  const auto* info = find_method(options.method);
  auto texts = options.method_options;
  for (const auto& [name, value] : texts) {
    const auto* option = info ? info->find(name) : nullptr;
    TORCH_CHECK(!option || !option->by_loop, "`", option_key(name), "` of ", options.method,
                " is set by the training loop; leave it out");
  }
  if (info && info->find("exclude")) {
    auto globs = model.unanchored();
    if (const auto& given = texts["exclude"]; !given.empty()) globs.push_back(given);
    texts["exclude"] = fmt::format("{}", fmt::join(globs, ","));
  }
  if (info && info->find("head")) texts["head"] = model.head_module() + ".*";
  return make_method(options.method, model, named_tensors(model), texts);
}

void check_text_head(const TrainOptions& options) {
  if (!options.head.is(HeadSource::Kind::kText)) return;
  TORCH_CHECK(options.mixup == 0 && options.cutmix == 0 && options.smoothing == 0,
              "`head` text: an image has one text, so `mixup`, `cutmix` and `smoothing` must be 0");
  TORCH_CHECK(options.head_lr.kind != HeadRate::Kind::kNumber,
              "`head` text has no head of its own for `head-lr`");
  TORCH_CHECK(options.weights.empty(), "`head` text goes with `checkpoint`, not with `weights`");
}

// A script's outputs are logits, and it is not known which of its layers computes them.
void check_head_is_known(const TrainOptions& options, const Classifier& model) {
  const auto* info = find_method(options.method);
  const bool rate = options.head_lr.kind == HeadRate::Kind::kNumber;
  const bool needed = rate || (info && info->find("head"));
  TORCH_CHECK(
      !needed || options.epochs == 0 || !model.options().head_name().empty(),
      rate ? "`head-lr`" : "`method` ", rate ? "" : options.method,
      ": the logits are the outputs of the script, and its last layer is not linear with a bias; name "
      "the layer that is its head with `head-name`, or add one with `head` fresh");
}

std::string absolute(const std::string& path) {
  return path.empty() ? path : fs::absolute(path).lexically_normal().string();
}

void decide_batch_sizes(TrainOptions& options, const RunData& data, std::vector<std::string>& notes) {
  const auto at_most = [&](const char* key, int64_t value, int64_t most) {
    if (value > most)
      notes.push_back(fmt::format("`{}` {}: there {} only {}", key, value, most == 1 ? "is" : "are",
                                  counted(most, "image")));
    return std::min(value, most);
  };
  options.batch_size = at_most("batch-size", options.batch_size, data.train.size());
  const int64_t batches = data.train.size() / options.batch_size;
  if (options.grad_accum_steps > batches) {
    notes.push_back(
        fmt::format("`grad-accum-steps` {}: an epoch has only {}", options.grad_accum_steps, batches));
    options.grad_accum_steps = batches;
  }
  if (auto note = left_out_note(options, data); !note.empty()) notes.push_back(std::move(note));
  options.validation_batch_size = options.validation_batch_size.value_or(options.batch_size);
  if (data.radius.size() > 0) {
    const int64_t usual = std::max<int64_t>(1, options.batch_size / 4);
    options.radius_batch_size =
        at_most("radius-batch-size", options.radius_batch_size.value_or(usual), data.radius.size());
  }
}

// A fresh head has everything to learn, and what it learns from is pre-trained.
void decide_head_rate(TrainOptions& options, bool fresh_head, std::vector<std::string>& notes) {
  constexpr double kLeast = 1e-3;
  if (options.head_lr.kind != HeadRate::Kind::kAuto) return;
  options.head_lr.kind = HeadRate::Kind::kSame;
  if (!fresh_head || options.lr <= 0 || options.lr >= kLeast || options.epochs == 0) return;
  const auto* method = find_method(options.method);
  if (method != nullptr && method->head_only) {
    notes.push_back(fmt::format("only the head trains, at `lr` {:g}; {:g} or more is usual for a fresh one",
                                options.lr, kLeast));
    return;
  }
  options.head_lr = {HeadRate::Kind::kNumber, kLeast};
  notes.push_back(
      fmt::format("`head-lr` {:g} for the fresh head, `lr` {:g} for the rest", kLeast, options.lr));
}

void decide_phases(TrainOptions& options, const RunData& data, std::vector<std::string>& notes) {
  if (const auto* method = find_method(options.method); method && method->probes_first) {
    options.lp_epochs = options.lp_epochs.value_or(options.epochs / 2);
    TORCH_CHECK(*options.lp_epochs <= options.epochs, "`lp-epochs` ", *options.lp_epochs,
                " are more than `epochs` ", options.epochs);
    options.lp_lr = options.lp_lr.value_or(options.head_lr.value(options.lr));
    TORCH_CHECK(options.head_lr.value(1) > 0, "`head-lr` 0 with ", options.method,
                ": the head is what its first phase trains");
  } else {
    std::vector<std::string> probing;
    for (const auto& other : methods()) {
      if (other.probes_first) probing.push_back(other.name);
    }
    TORCH_CHECK(!options.lp_epochs && !options.lp_lr, "`lp-epochs` and `lp-lr` are options of ",
                fmt::format("{}", fmt::join(probing, ", ")), ", not of ", options.method);
  }
  if (const int64_t most = options.epochs - options.lp_epochs.value_or(0); options.warmup_epochs > most) {
    notes.push_back(fmt::format("`warmup-epochs` {}: there are only {} epochs", options.warmup_epochs, most));
    options.warmup_epochs = most;
  }
  TORCH_CHECK(options.patience == 0 || data.selection.size() > 0,
              "`patience` needs selection data: `selection-fraction` 0.1 holds some out");
  TORCH_CHECK(options.head_lr.kind != HeadRate::Kind::kNumber || options.lr > 0,
              "`head-lr` with `lr` 0: that is `method` lp `lr` ", options.head_lr.number);
}

void make_paths_absolute(TrainOptions& options) {
  TrainOptions::fields(
      [](const char*, const char* key, Trait, const char*, auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, HeadSource>) {
          value.file = absolute(value.file);
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (is_path(key, value)) value = absolute(value);
        }
      },
      options);
  options.test = absolute_tests(options.test, test_folders(options.data_dir));
}

// What is left open is decided, so that the run can be repeated from its recipe.
void decide_open_options(TrainOptions& options, Setup& setup) {
  options.device = setup.device;
  options.model = keys::kModel.at(setup.metadata);
  options.image_size.reset();  // the model has it
  options.head_name = setup.model->options().head_name();
  make_paths_absolute(options);
  const auto& loader = setup.images.loader;
  options.mean.assign(loader.mean().begin(), loader.mean().end());
  options.std.assign(loader.std().begin(), loader.std().end());
  options.crop_pct = setup.images.eval.crop_pct();
  options.interpolation = setup.images.eval.interpolation();
  add_method_defaults(options);
}

}  // namespace

Setup prepare_run(TrainOptions options, DataUse use) try {
  Setup setup;
  TORCH_CHECK(!options.data_dir.empty(), "`data-dir` is needed: the images to train on");
  setup.device = find_device(options.device);
  at::manual_seed(static_cast<uint64_t>(options.seed));
  check_text_head(options);
  const Dataset data = open_dataset(options, use);
  ModelSetup loaded = load_model(options, data, setup.device);
  setup.model = std::move(loaded.model);
  setup.metadata = std::move(loaded.metadata);
  setup.notes = std::move(loaded.notes);
  setup.data = open_data(options, data.with_classes(loaded.classes), use);
  if (setup.model->head) keys::kClasses.set(setup.metadata, setup.data.classes);
  setup.images = make_images(options, *setup.model, setup.metadata, setup.device);
  keys::kView.set(setup.metadata, view_of(setup.images));
  setup.model->to(setup.device);
  if (!options.channels_last)
    options.channels_last = parse_model(keys::kModel.at(setup.metadata)).family->channels_last;
  if (*options.channels_last) to_channels_last(*setup.model);
  options.head = loaded.head;
  decide_batch_sizes(options, setup.data, setup.notes);
  decide_head_rate(options, loaded.fresh_head, setup.notes);
  decide_phases(options, setup.data, setup.notes);
  decide_every(options, *setup.model, setup.notes);
  decide_radius_loss(options, setup.notes);
  decide_open_options(options, setup);
  if (loaded.outputs_are_logits) check_head_is_known(options, *setup.model);
  if (options.epochs == 0 && options.weights.empty() && !setup.model->unanchored().empty())
    setup.notes.emplace_back(
        "`epochs` 0: the fresh head stays random, so the accuracies mean nothing; `weights` of a run, or "
        "`head` zeroshot or checkpoint, has one that was trained");

  setup.method = make_configured_method(options, *setup.model);
  const auto parameters = setup.model->parameters();
  TORCH_CHECK(options.epochs == 0 ||
                  std::any_of(parameters.begin(), parameters.end(),
                              [](const at::Tensor& parameter) { return parameter.requires_grad(); }),
              "`method` ", options.method, " has nothing to train: its parameters are frozen in the script");
  TORCH_CHECK(!setup.method->needs_radius_data() || setup.data.radius.size() > 0, options.method,
              " learns from radius data, and there are none: ", no_radius_data(options, setup.data));
  if (!options.weights.empty()) load_start(*setup.model, options, setup.data.classes);
  setup.options = std::move(options);
  return setup;
} catch (...) {
  rethrow_from("prepare_run");
}

}  // namespace tpgm

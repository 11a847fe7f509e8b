// Options, checkpoints and data sets, put together.
#include "tpgm/train/setup.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/cuda.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tpgm/base/byte_count.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/class_list.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/methods/registry.h"
#include "tpgm/models/families.h"
#include "tpgm/models/registry.h"
#include "tpgm/nn/precision.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/weights/load_classifier.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

LoaderOptions::Triple triple(const std::vector<double>& given, const std::array<double, 3>& usual) {
  if (given.empty()) return usual;
  TORCH_CHECK(given.size() != 2, "[train] `mean` and `std` take one number or three");
  return given.size() == 1 ? LoaderOptions::Triple{given[0], given[0], given[0]}
                           : LoaderOptions::Triple{given[0], given[1], given[2]};
}

bool has(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// Of each class of a test as much as options.test_fraction says.
SampleSubset thinned(SampleSubset subset, const TrainOptions& options) {
  if (options.test_fraction == 1) return subset;
  const auto kept = split(subset.samples, SplitOptions()
                                              .fraction(options.test_fraction)
                                              .radius(0)
                                              .selection(0)
                                              .seed(static_cast<uint64_t>(options.split_seed)))
                        .train;
  SampleSubset result{subset.samples, {}};
  std::set_intersection(subset.indices.begin(), subset.indices.end(), kept.indices.begin(),
                        kept.indices.end(), std::back_inserter(result.indices));
  if (result.indices.empty()) result.indices.push_back(subset.indices.front());
  return result;
}

// Tests from elsewhere must not be what is trained on, and every test needs a name of its own.
void check_others(const RunData& data) {
  std::vector<std::pair<std::string, const SampleSubset*>> all = {
      {"train", &data.train}, {"radius", &data.radius}, {"selection", &data.selection}};
  std::set<std::string> names;
  for (const auto& test : data.tests) {
    TORCH_CHECK(names.insert(test.name).second, "[train] `test`: there are two called '",
                printable(test.name), "'");
    all.emplace_back("test " + test.name, &test.subset);
  }
  for (const auto& [name, subset] : all) {
    if (subset->samples == nullptr) return;
  }
  check_disjoint(all);
}

// "v2=../imagenetv2": a test in a data set of its own.
std::optional<std::pair<std::string, fs::path>> elsewhere(const std::string& test,
                                                          const std::string& data_dir) {
  const size_t at = test.find('=');
  if (at == std::string::npos) return std::nullopt;
  const fs::path path = test.substr(at + 1);
  return std::pair{test.substr(0, at), path.is_absolute() ? path : fs::path(data_dir) / path};
}

// A test by the path of a data set of its own is the likeliest mistake.
void check_place(const std::string& test, const std::string& data_dir, const Dataset& data) {
  const auto known = [&](const Dataset::Part& part) {
    return part->domain == test || part->title() == test || part->split == test;
  };
  if (std::any_of(data.parts().begin(), data.parts().end(), known) || !fs::is_directory(test)) return;
  const fs::path path = fs::relative(test, data_dir);
  const fs::path name = fs::absolute(test).lexically_normal();
  TORCH_CHECK(false, "[train] `test` ", printable(test),
              ": another data set is NAME=PATH, the path from `data-dir`: `test` ",
              (name.has_filename() ? name : name.parent_path()).filename().string(), "=", path.string());
}

SampleSubset open_elsewhere(const std::string& name, const fs::path& path,
                            const std::vector<std::string>& classes) {
  const Dataset data(path.string(), DatasetOptions().classes(classes));
  if (data.parts().size() == 1) return all_of(data.parts().front());
  for (const char* split : {"test", "val", "validation"}) {
    if (const auto part = data.find("", split)) return all_of(part);
  }
  TORCH_CHECK(false, "[train] `test` ", name, ": '", path.string(), "' has the parts ",
              fmt::format("{}", fmt::join(data.titles(), ", ")), "; give the folder of one");
}

// The domain to train on, where nobody says.
std::string only_training_part(const Dataset& data) {
  std::vector<std::string> titles;
  for (const auto& part : data.parts()) {
    if (part->split == "train") titles.push_back(part->domain.empty() ? part->title() : part->domain);
  }
  if (titles.empty() && data.parts().size() == 1) return data.parts().front()->title();
  TORCH_CHECK(titles.size() == 1, "[train] `train`: '", data.where(), "' has the parts ",
              fmt::format("{}", fmt::join(data.titles(), ", ")), "; say which to train on");
  return titles.front();
}

void mark_id(std::vector<TestSet>& tests, const std::vector<std::string>& id, size_t own) {
  std::vector<std::string> names;
  for (size_t i = 0; i < tests.size(); ++i) {
    tests[i].id = id.empty() ? i == own : has(id, tests[i].name);
    names.push_back(tests[i].name);
  }
  for (const auto& name : id) {
    TORCH_CHECK(has(names, name), "[train] `id` ", printable(name), " is no test; did you mean '",
                nearest(name, names), "'?");
  }
}

// Both held-out sets become their union.
void share(SampleSubset& radius, SampleSubset& selection, std::vector<std::string>& notes) {
  if (radius.indices.empty()) radius = selection;
  TORCH_CHECK(
      selection.indices.empty() || radius.samples == selection.samples,
      "[train] `share-validation`: radius and selection data are two parts of the data set; join them there");
  if (!selection.indices.empty() && radius.indices != selection.indices) {
    radius.indices.insert(radius.indices.end(), selection.indices.begin(), selection.indices.end());
    std::sort(radius.indices.begin(), radius.indices.end());
  }
  selection = radius;
  notes.push_back(
      fmt::format("share-validation: radii and selection use the same {} pictures", radius.size()));
}

struct Model {
  std::shared_ptr<Classifier> model;
  Metadata metadata;
  std::vector<std::string> classes;  // in the head's order; empty: the data's
};

std::shared_ptr<Classifier> fresh_model(const std::string& name, int64_t classes, Metadata& metadata) {
  ModelConfig config = parse_model(name);
  set_defaults(config);
  auto backbone = make_backbone(config);
  backbone->reset_parameters();
  metadata["tpgm.model"] = to_text(config);
  return std::make_shared<Classifier>(std::move(backbone), ClassifierOptions().num_classes(classes));
}

// The rows of `wanted` among the head's `known` classes.
std::shared_ptr<Classifier> with_rows(const Classifier& model, const std::vector<std::string>& known,
                                      const std::vector<std::string>& wanted, const std::string& checkpoint) {
  std::vector<int64_t> rows;
  for (const auto& name : wanted) {
    const auto found = std::find(known.begin(), known.end(), name);
    TORCH_CHECK(found != known.end(), "[train] `head` checkpoint: '", checkpoint, "' knows no class '",
                printable(name), "'; the nearest is '", printable(nearest(name, known)),
                "'. Take a fresh head with `head` fresh");
    rows.push_back(found - known.begin());
  }
  const at::Tensor index = at::tensor(rows);
  const at::Tensor weight = model.head->weight.detach().index_select(0, index);
  const at::Tensor bias =
      model.options().bias() ? model.head->bias.detach().index_select(0, index) : at::Tensor();
  return std::make_shared<Classifier>(model.backbone, weight, bias,
                                      ClassifierOptions(model.options()).num_classes(0));
}

// The classes to be told apart, before the model is there: the list's, or the data's.
std::vector<std::string> data_classes(const TrainOptions& options) {
  if (!options.class_list.empty()) return load_class_list(options.class_list);
  return Dataset(options.data_dir).classes();
}

// What the classes are called in sentences.
std::vector<std::string> names_for(const TrainOptions& options, std::vector<std::string> classes) {
  if (options.classnames.empty()) {
    for (auto& name : classes) std::replace(name.begin(), name.end(), '_', ' ');
    return classes;
  }
  auto names = load_class_names(options.classnames);
  TORCH_CHECK(names.size() == classes.size(), "[train] `classnames` '", options.classnames, "' has ",
              names.size(), " names, the data ", classes.size(), " classes");
  return names;
}

// A head from text: made once, or in every step.
Model load_with_text(const TrainOptions& options, const std::vector<std::string>& classes, c10::Device device,
                     std::vector<std::string>& notes) {
  ModelConfig config;
  std::optional<ModelWeights> weights;
  Model result;
  result.classes = classes;
  if (options.checkpoint.empty()) {
    TORCH_CHECK(options.head == "text" && !options.model.empty(), "[train] `head` ", options.head,
                options.head == "text" ? " needs a `model` of CLIP's, such as clip-vit, or a `checkpoint`"
                                       : " needs a `checkpoint` of CLIP, both towers");
    config = parse_model(options.model);
    set_defaults(config);
  } else {
    const Checkpoint checkpoint(options.checkpoint, "", "train");
    weights = read_weights(checkpoint,
                           options.model.empty() ? std::nullopt : std::optional(parse_model(options.model)));
    TORCH_CHECK(weights->has_text(), "[train] `head` ", options.head, ": '", options.checkpoint, "', a ",
                weights->config.family->name, ", has no text tower; it takes a whole CLIP, both towers");
    config = weights->config;
    result.metadata = checkpoint.metadata();
    for (const auto& note : weights->notes)
      notes.push_back(fmt::format("'{}': {}", options.checkpoint, note));
  }
  const auto clip = make_clip(config);
  if (weights) {
    const auto exclude =
        weights->has_head() ? std::vector<std::string>{"head.*"} : std::vector<std::string>();
    load_state_dict(*clip, weights->tensors, exclude, options.checkpoint);
  } else {
    notes.emplace_back("no `checkpoint`: all weights are drawn from the seed, and are their own anchor");
    clip->reset_parameters();
  }
  const auto templates = find_templates(options.templates, result.metadata);
  const auto tokenizer = find_tokenizer(options.vocab, options.checkpoint, *config.vocab);
  const auto names = names_for(options, classes);
  config.recompute.reset();  // of how to compute, not of what
  Metadata kept = {{"tpgm.model", to_text(config)},
                   {"tpgm.layout", to_text(weights ? weights->layout : Layout::kTpgm)},
                   {"tpgm.templates", nlohmann::json(templates).dump()}};
  if (const auto view = result.metadata.find("tpgm.view"); view != result.metadata.end()) kept.insert(*view);
  result.metadata = std::move(kept);
  int64_t truncated = 0;
  if (options.head == "text") {
    auto [tokens, cut] = tokenize_classes(*clip->text, tokenizer, names, templates);
    truncated = cut;
    result.model = std::make_shared<Classifier>(*clip, std::move(tokens));
  } else {
    clip->to(device);
    const auto head = make_zero_shot(*clip->text, clip->logit_scale.detach(), tokenizer, names, templates);
    truncated = head.truncated;
    result.model = std::make_shared<Classifier>(clip->visual, head.weight, at::Tensor(),
                                                ClassifierOptions().normalize(true));
    result.metadata["tpgm.normalize"] = "true";
  }
  notes.push_back(
      fmt::format("{} classes from text, '{}' to '{}'", names.size(), names.front(), names.back()));
  if (truncated > 0)
    notes.push_back(fmt::format("{} sentences are longer than {} tokens and were cut", truncated,
                                clip->text->options().context()));
  return result;
}

Model load_model(const TrainOptions& options, c10::Device device, std::vector<std::string>& notes) {
  Model result;
  const auto wanted = data_classes(options);
  const auto count = static_cast<int64_t>(wanted.size());
  TORCH_CHECK(count > 0, "[train] '", options.data_dir,
              "' has no labels; training needs classes: a folder of pictures for each");
  TORCH_CHECK(count > 1, "[train] '", options.data_dir, "' has one class, '", printable(wanted.front()),
              "'; there is nothing to tell apart");
  if (options.head == "text" || options.head == "zeroshot")
    return load_with_text(options, wanted, device, notes);
  TORCH_CHECK(options.classnames.empty() && options.templates.empty() && options.vocab.empty(),
              "[train] `classnames`, `templates` and `vocab` are for `head` zeroshot or text, not ",
              options.head);
  if (options.checkpoint.empty() && !is_script(options.model)) {
    TORCH_CHECK(!options.model.empty(), "[train] `model` or `checkpoint` is needed: what to fine-tune");
    TORCH_CHECK(options.head == "fresh", "[train] `head` ", options.head, " needs a `checkpoint`");
    notes.emplace_back("no `checkpoint`: all weights are drawn from the seed, and are their own anchor");
    result.model = fresh_model(options.model, count, result.metadata);
    result.classes = wanted;
    return result;
  }
  LoadOptions load;
  if (options.head == "fresh") {
    load.head(Head::kFresh).classifier(ClassifierOptions().num_classes(count));
  } else if (options.head != "checkpoint") {
    load.head(Head::kZeroShot).head_file(options.head);
  }
  auto loaded = load_classifier(options.model, options.checkpoint, load);
  const bool text =
      !is_script(options.model) && Checkpoint(options.checkpoint, "", "train").contains("logit_scale");
  if (options.head == "fresh" && options.epochs > 0 && !options.head_lr && options.lr < 1e-4)
    notes.push_back(fmt::format("the head is fresh and learns at `lr` {:g}; `head-lr` 1e-3 is faster{}",
                                options.lr,
                                text ? ", and `head` zeroshot begins with the names of the classes" : ""));
  for (const auto& note : loaded.notes) notes.push_back(fmt::format("'{}': {}", options.checkpoint, note));
  result.model = loaded.model;
  result.metadata = loaded.metadata;
  result.classes = wanted;
  if (options.head == "fresh") return result;

  std::vector<std::string> known;
  if (options.head == "checkpoint") {
    known = classes_of(Checkpoint(options.checkpoint, "", "train").metadata());
    if (!known.empty()) {
      result.model = with_rows(*loaded.model, known, wanted, options.checkpoint);
      if (known.size() > wanted.size())
        notes.push_back(fmt::format("the head keeps {} of its {} classes", wanted.size(), known.size()));
      return result;
    }
  } else if (options.class_list.empty()) {
    if (auto names = classes_by_folder(Dataset(options.data_dir), load_zero_shot(options.head).class_names)) {
      result.classes = *names;
      return result;
    }
    notes.emplace_back("no folder is called as a class of the head is; they are matched by their order");
  }
  TORCH_CHECK(result.model->num_classes() == count, "[train] the head has ", result.model->num_classes(),
              " classes, the data ", count,
              ": say which is which with `class-list`, or take a fresh head with `head` fresh");
  return result;
}

// Weights to start from, beside the anchor.
void load_start(Classifier& model, const TrainOptions& options, const std::vector<std::string>& classes) {
  // A script is run where the options name it, and by no checkpoint's word.
  const std::string model_name = is_script(options.model) ? options.model : "";
  const auto start = load_classifier(model_name, options.weights, LoadOptions());
  TORCH_CHECK(start.model->num_classes() == model.num_classes(), "[train] `weights` '", options.weights,
              "' has ", start.model->num_classes(), " classes, the data ", model.num_classes());
  const auto theirs = classes_of(Checkpoint(options.weights, "", "train").metadata());
  TORCH_CHECK(theirs.empty() || theirs == classes, "[train] `weights` '", options.weights,
              "' has the same number of classes in another order, or others");
  load_state_dict(model, state_dict(*start.model), {}, options.weights);
}

std::unique_ptr<Method> make(const TrainOptions& options, Classifier& model) {
  auto texts = options.method_options;
  for (const auto& method : methods()) {
    if (method.name != options.method) continue;
    for (const auto& option : method.options) {
      if (option.name == "exclude") {  // a fresh head has no anchor
        auto globs = model.unanchored();
        if (const auto& given = texts["exclude"]; !given.empty()) globs.push_back(given);
        texts["exclude"] = fmt::format("{}", fmt::join(globs, ","));
      }
      TORCH_CHECK(!texts.contains("lp_steps"), "[train] `lp-steps` is the library's; use `lp-epochs`");
    }
  }
  return make_method(options.method, model, named_tensors(model), texts);
}

void check_text(const TrainOptions& options) {
  if (options.head != "text") return;
  TORCH_CHECK(options.mixup == 0 && options.cutmix == 0 && options.smoothing == 0,
              "[train] `head` text: a picture has one text, so `mixup`, `cutmix` and `smoothing` must be 0");
  TORCH_CHECK(!options.head_lr, "[train] `head` text has no head of its own for `head-lr`");
  TORCH_CHECK(options.weights.empty(), "[train] `head` text goes with `checkpoint`, not with `weights`");
}

std::string absolute(const std::string& path) {
  return path.empty() ? path : fs::absolute(path).lexically_normal().string();
}

// What is left open is decided, so that the run can be repeated from its recipe.
void decide(TrainOptions& options, Setup& setup, std::vector<std::string>& notes) {
  const auto at_most = [&](const char* key, int64_t value, int64_t most) {
    if (value > most) notes.push_back(fmt::format("`{}` {}: there are only {} pictures", key, value, most));
    return std::min(value, most);
  };
  options.batch_size = at_most("batch-size", options.batch_size, setup.data.train.size());
  const int64_t batches = setup.data.train.size() / options.batch_size;
  if (options.grad_accum_steps > batches) {
    notes.push_back(
        fmt::format("`grad-accum-steps` {}: an epoch has only {}", options.grad_accum_steps, batches));
    options.grad_accum_steps = batches;
  }
  options.validation_batch_size = options.validation_batch_size.value_or(options.batch_size);
  if (setup.data.radius.size() > 0) {
    options.radius_batch_size = at_most(
        "radius-batch-size", options.radius_batch_size.value_or(std::max<int64_t>(1, options.batch_size / 4)),
        setup.data.radius.size());
  }
  if (options.method == "lp-ft") {
    options.lp_epochs = options.lp_epochs.value_or(options.epochs / 2);
    TORCH_CHECK(*options.lp_epochs <= options.epochs, "[train] `lp-epochs` ", *options.lp_epochs,
                " are more than `epochs` ", options.epochs);
    options.lp_lr = options.lp_lr.value_or(options.lr);
    TORCH_CHECK(options.head_lr.value_or(1) > 0,
                "[train] `head-lr` 0 with lp-ft: the head is what its first phase trains");
  } else {
    TORCH_CHECK(!options.lp_epochs && !options.lp_lr,
                "[train] `lp-epochs` and `lp-lr` are options of lp-ft, not of ", options.method);
  }
  if (const int64_t most = options.epochs - options.lp_epochs.value_or(0); options.warmup_epochs > most) {
    notes.push_back(fmt::format("`warmup-epochs` {}: there are only {} epochs", options.warmup_epochs, most));
    options.warmup_epochs = most;
  }
  TORCH_CHECK(options.patience == 0 || setup.data.selection.size() > 0,
              "[train] `patience` needs selection data: `selection-fraction` 0.1 holds some out");
  TORCH_CHECK(!options.head_lr || options.lr > 0, "[train] `head-lr` with `lr` 0: that is `method` lp `lr` ",
              options.head_lr.value_or(0));
  options.device = setup.device.str();
  options.model = setup.metadata.at("tpgm.model");
  if (is_script(options.model)) {
    ModelConfig config = parse_model(options.model);
    config.file = absolute(config.file);
    options.model = setup.metadata["tpgm.model"] = to_text(config);
  }
  TrainOptions::fields(
      [](const char*, const char* key, const char*, auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          if (is_path(key, value)) value = absolute(value);
        }
      },
      options);
  const auto& loader = setup.pictures.loader;
  options.mean.assign(loader.mean().begin(), loader.mean().end());
  options.std.assign(loader.std().begin(), loader.std().end());
  options.crop_pct = setup.pictures.eval.crop_pct();
  options.interpolation =
      setup.pictures.eval.interpolation() == Interpolation::kBicubic ? "bicubic" : "bilinear";
  setup.metadata["tpgm.view"] = nlohmann::json{
      {"mean", options.mean},
      {"std", options.std},
      {"crop_pct", *options.crop_pct},
      {"interpolation",
       *options.interpolation}}.dump();
  for (const auto& method : methods()) {
    if (method.name != options.method) continue;
    for (const auto& option : method.options) {  // the trainer knows the head, and counts epochs
      if (option.name != "head" && option.name != "lp_steps")
        options.method_options.emplace(option.name, option.default_value);
    }
  }
}

}  // namespace

std::optional<c10::Device> parse_device(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "cpu") return c10::Device(c10::kCPU);
  const std::string name = text == "cuda" ? "cuda:0" : text;
  try {
    const c10::Device device(name);
    if (device.is_cuda() && device.str() == name) return device;  // it reads 256 as 0
  } catch (const c10::Error&) {                                   // the line below says what is expected
  }
  TORCH_CHECK(false, "[parse_device] `device` ", text, ": expected auto, cpu, cuda or cuda:N");
}

c10::Device find_device(const std::string& text, const std::string& call) {
  const auto device = parse_device(text).value_or(torch::cuda::is_available() ? c10::Device("cuda:0")
                                                                              : c10::Device(c10::kCPU));
  if (device.is_cpu()) return device;
  TORCH_CHECK(torch::cuda::is_available(), "[", call, "] `device` ", text,
              ": no CUDA device is visible, or this LibTorch was built without CUDA");
  TORCH_CHECK(device.index() < static_cast<int>(torch::cuda::device_count()), "[", call, "] `device` ", text,
              ": there are ", torch::cuda::device_count(), " devices");
  return device;
}

PictureView view_of(const Metadata& metadata) {
  const auto found = metadata.find("tpgm.view");
  if (found == metadata.end()) return {};
  const auto json = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  try {
    return {json.at("mean"), json.at("std"), json.at("crop_pct").get<double>(),
            json.at("interpolation").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    TORCH_CHECK(false,
                "[view_of] 'tpgm.view' in a checkpoint's metadata does not say mean, std, crop_pct and "
                "interpolation");
  }
}

Pictures make_pictures(const TrainOptions& options, const Classifier& model, const Metadata& metadata,
                       c10::Device device) {
  const PictureView own = view_of(metadata);
  const Family& family = *parse_model(metadata.at("tpgm.model")).family;
  const Normalization& usual = family.normalization;
  const auto interpolation =
      parse_interpolation(options.interpolation.value_or(own.interpolation.value_or("bicubic")));
  Pictures pictures;
  pictures.augment = !options.no_aug;
  pictures.eval.image_size(model.backbone->image_size())
      .crop_pct(options.crop_pct.value_or(own.crop_pct.value_or(family.crop_pct)))
      .decode(parse_decode(options.decode))
      .interpolation(interpolation);
  const auto& jitter = options.color_jitter;
  const auto strength = [&](size_t i) {
    return jitter.size() == 1 ? (i < 3 ? jitter[0] : 0) : i < jitter.size() ? jitter[i] : 0;
  };
  RandAugmentOptions augment;
  if (!options.rand_augment.empty()) augment.num_ops(static_cast<int64_t>(options.rand_augment[0]));
  if (options.rand_augment.size() > 1) augment.magnitude(static_cast<int64_t>(options.rand_augment[1]));
  pictures.train.image_size(model.backbone->image_size())
      .scale({options.crop_scale[0], options.crop_scale[1]})
      .ratio({options.crop_ratio[0], options.crop_ratio[1]})
      .hflip(options.hflip)
      .color_jitter(ColorJitterOptions()
                        .brightness(strength(0))
                        .contrast(strength(1))
                        .saturation(strength(2))
                        .hue(strength(3)))
      .rand_augment(augment)
      .decode(parse_decode(options.train_decode))
      .interpolation(interpolation);
  const auto threads = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  pictures.loader.device(device)
      .channels(model.backbone->channels())
      .mean(triple(options.mean.empty() ? own.mean : options.mean, usual.mean))
      .std(triple(options.std.empty() ? own.std : options.std, usual.std))
      .workers(options.workers > 0 ? options.workers : threads)
      .max_pixels(options.max_pixels)
      .on_bad_image(parse_on_bad_image(options.on_bad_image))
      .cache(options.cache == "0" ? 0 : parse_bytes(options.cache))
      .seed(static_cast<uint64_t>(options.seed));
  return pictures;
}

RunData open_data(const TrainOptions& options, const std::vector<std::string>& classes) {
  const Dataset data(options.data_dir, DatasetOptions().classes(classes));
  RunData result;
  result.classes = data.classes();
  for (const auto& note : data.notes())
    result.notes.push_back(fmt::format("'{}': {}", options.data_dir, note));

  const std::string train = options.train.empty() ? only_training_part(data) : options.train;
  const auto source = data.part(train, Role::kTrain);
  Dataset::Part own;
  for (const char* split : {"test", "val", "validation"}) {
    if (!own) own = data.find(source->domain, split);
  }
  std::vector<std::string> names = {train};
  std::string own_name = !source->domain.empty() ? source->domain : own ? own->title() : "test";
  for (const auto& test : options.test) {
    if (elsewhere(test, options.data_dir)) continue;
    check_place(test, options.data_dir, data);
    const bool is_own = test == train || test == source->domain || (own && test == own->title());
    if (is_own) own_name = test;
    if (!is_own) names.push_back(test);
  }
  auto task = make_task(data, train, names,
                        SplitOptions()
                            .fraction(options.fraction)
                            .radius(options.radius_fraction)
                            .selection(options.selection_fraction)
                            .seed(static_cast<uint64_t>(options.split_seed)));
  result.train = std::move(task.train);
  result.radius = std::move(task.radius);
  result.selection = std::move(task.selection);
  for (auto& note : task.notes) {
    if (!note.starts_with("test: ")) result.notes.push_back(std::move(note));  // of which less may be used
  }
  task.tests.front().first = own_name;
  for (auto& [name, subset] : task.tests) result.tests.push_back({name, thinned(std::move(subset), options)});
  for (const auto& test : options.test) {
    if (const auto other = elsewhere(test, options.data_dir))
      result.tests.push_back(
          {other->first, thinned(open_elsewhere(other->first, other->second, result.classes), options)});
  }
  check_others(result);
  if (options.share_validation) share(result.radius, result.selection, result.notes);
  mark_id(result.tests, options.id, 0);
  for (const auto& test : result.tests) {
    result.notes.push_back(fmt::format("test {} ({}): {}, {} pictures", test.name, test.id ? "ID" : "OOD",
                                       test.subset.samples->title(), test.subset.size()));
  }
  return result;
}

std::vector<TestSet> open_tests(const TrainOptions& options, const std::vector<std::string>& classes) {
  if (!options.train.empty()) return open_data(options, classes).tests;
  std::vector<TestSet> tests;
  std::optional<Dataset> data;
  for (const auto& test : options.test) {
    if (const auto other = elsewhere(test, options.data_dir)) {
      tests.push_back({other->first, open_elsewhere(other->first, other->second, classes)});
    } else {
      if (!data) data.emplace(options.data_dir, DatasetOptions().classes(classes));
      tests.push_back({test, all_of(data->part(test, Role::kTest))});
    }
    tests.back().subset = thinned(std::move(tests.back().subset), options);
  }
  mark_id(tests, options.id, tests.size());
  return tests;
}

std::optional<std::vector<std::string>> classes_by_folder(const Dataset& data,
                                                          std::vector<std::string> names) {
  size_t known = 0;
  const auto head_names = names;
  std::string unknown;
  for (const auto& folder : data.classes()) {
    std::string name = folder;
    std::replace(name.begin(), name.end(), '_', ' ');
    const auto found = std::find(head_names.begin(), head_names.end(), name);
    if (found == head_names.end()) {
      unknown = name;
    } else {
      names[static_cast<size_t>(found - head_names.begin())] = folder;
      ++known;
    }
  }
  if (known == 0) return std::nullopt;
  TORCH_CHECK(known == data.classes().size(), "[classes_by_folder] the head has no class '",
              printable(unknown), "', and has others of the data; the nearest is '",
              printable(nearest(unknown, head_names)), "'");
  return names;
}

std::vector<std::string> classes_of(const Metadata& metadata) {
  const auto found = metadata.find("tpgm.classes");
  if (found == metadata.end()) return {};
  const auto json = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> classes;
  if (json.is_array()) {
    for (const auto& name : json) {
      if (name.is_string()) classes.push_back(name);
    }
  }
  TORCH_CHECK(!classes.empty() && classes.size() == json.size(),
              "[classes_of] 'tpgm.classes' in a checkpoint's metadata is no list of names");
  return classes;
}

Setup prepare(TrainOptions options) {
  Setup setup;
  TORCH_CHECK(!options.data_dir.empty(), "[train] `data-dir` is needed: the pictures to train on");
  setup.device = find_device(options.device, "train");
  at::manual_seed(static_cast<uint64_t>(options.seed));
  check_text(options);
  auto [model, metadata, classes] = load_model(options, setup.device, setup.notes);
  setup.model = model;
  setup.metadata = metadata;
  setup.data = open_data(options, classes);
  if (setup.model->head)
    setup.metadata["tpgm.classes"] =
        nlohmann::json(setup.data.classes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  setup.pictures = make_pictures(options, *setup.model, setup.metadata, setup.device);
  setup.model->to(setup.device);
  if (!options.channels_last)
    options.channels_last = parse_model(setup.metadata.at("tpgm.model")).family->channels_last;
  if (*options.channels_last) to_channels_last(*setup.model);
  decide(options, setup, setup.notes);

  setup.method = make(options, *setup.model);
  TORCH_CHECK(!setup.method->needs_radius_data() || setup.data.radius.size() > 0, "[train] ", options.method,
              " learns from radius data, and there are none: `radius-fraction` 0.1 holds some out");
  if (!options.weights.empty()) load_start(*setup.model, options, setup.data.classes);
  setup.options = std::move(options);
  return setup;
}

}  // namespace tpgm

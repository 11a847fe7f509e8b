// The table of options as text: recipes in and out.
#include "tpgm/train/options.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/loader.h"
#include "tpgm/data/mix.h"
#include "tpgm/methods/registry.h"
#include "tpgm/train/optim.h"
#include "tpgm/train/schedule.h"
#include "tpgm/train/toml.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

std::string with_dashes(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

// Option of a method by its key; nullptr if it has none of the name.
const OptionInfo* find_option(const MethodInfo& method, const std::string& key) {
  for (const auto& option : method.options) {
    if (with_dashes(option.name) == key) return &option;
  }
  return nullptr;
}

const MethodInfo& method_info(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& method : methods()) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  TORCH_CHECK(false, "[train] no method '", name, "'; did you mean '", nearest(name, names),
              "'? 'tpgm list methods' has them all");
}

[[noreturn]] void unknown_key(const std::string& where, const std::string& key) {
  TORCH_CHECK(false, "[train] ", where, "no option '", printable(key), "'; did you mean '",
              nearest_option(key, option_keys()), "'?");
}

Recipe load(const fs::path& file, int depth) {
  const std::string where = fmt::format("'{}': ", printable(file.string(), kMaxPath));
  TORCH_CHECK(depth < 8, "[train] ", where, "recipes that are each other's base");
  const fs::path folder = fs::absolute(file).parent_path();
  const auto known = option_keys();
  Recipe recipe, base;
  for (const auto& [name, values] : read_toml(file)) {
    const std::string key = with_dashes(name);
    const std::string text = fmt::format("{}", fmt::join(values, ","));
    if (key == "base") {
      base = load(folder / text, depth + 1);
    } else if (key == "sweep") {
      recipe.sweep = values;
    } else if (key == "seeds") {
      recipe.seeds = values;
    } else if (key == "take") {
      recipe.take = values;
    } else if (std::find(known.begin(), known.end(), key) == known.end()) {
      unknown_key(where, key);
    } else {
      recipe.settings[key] = is_path(key, text) ? (folder / text).lexically_normal().string() : text;
    }
  }
  recipe.settings.merge(base.settings);
  if (recipe.sweep.empty()) recipe.sweep = base.sweep;
  if (recipe.seeds.empty()) recipe.seeds = base.seeds;
  if (recipe.take.empty()) recipe.take = base.take;
  return recipe;
}

template <class Parse>
void check_word(const char* key, const std::string& text, const Parse& parse) {
  try {
    parse(text);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK(false, "[train] `", key, "`: ", error.what());
  }
}

void one_of(const char* key, const std::string& text, const std::vector<std::string>& words) {
  TORCH_CHECK(std::find(words.begin(), words.end(), text) != words.end(), "[train] `", key, "` is ",
              fmt::format("{}", fmt::join(words, " or ")), ", not '", printable(text), "'");
}

void in_range(const char* key, double value, double low, double high) {
  TORCH_CHECK(value >= low && value <= high, "[train] `", key, "` ", value, ": must be ",
              high > 1e17 && !(value > high) ? fmt::format("{} or more", low)
                                             : fmt::format("from {} to {}", low, high));
}

constexpr double kAny = 1e18;

void check(const TrainOptions& o) {
  check_word("opt", o.opt, parse_opt);
  check_word("sched", o.sched, parse_sched);
  check_word("decode", o.decode, parse_decode);
  check_word("train-decode", o.train_decode, parse_decode);
  if (o.interpolation) check_word("interpolation", *o.interpolation, parse_interpolation);
  check_word("on-bad-image", o.on_bad_image, parse_on_bad_image);
  one_of("on-nan", o.on_nan, {"error", "skip"});
  one_of("classes", o.classes, {"all", "subset"});
  in_range("epochs", static_cast<double>(o.epochs), 0, 1e6);
  for (const auto& [key, value] : {std::pair{"batch-size", o.batch_size},
                                   {"grad-accum-steps", o.grad_accum_steps},
                                   {"validation-batch-size", o.validation_batch_size.value_or(1)},
                                   {"radius-batch-size", o.radius_batch_size.value_or(1)},
                                   {"decay-epochs", o.decay_epochs},
                                   {"log-every", o.log_every},
                                   {"max-pixels", o.max_pixels}}) {
    in_range(key, static_cast<double>(value), 1, kAny);
  }
  for (const auto& [key, value] : {std::pair{"warmup-epochs", o.warmup_epochs},
                                   {"lp-epochs", o.lp_epochs.value_or(0)},
                                   {"patience", o.patience},
                                   {"seed", o.seed},
                                   {"split-seed", o.split_seed},
                                   {"checkpoint-every", o.checkpoint_every},
                                   {"workers", o.workers}}) {
    in_range(key, static_cast<double>(value), 0, kAny);
  }
  for (const auto& [key, value] : {std::pair{"lr", o.lr},
                                   {"head-lr", o.head_lr.value_or(0)},
                                   {"lp-lr", o.lp_lr.value_or(0)},
                                   {"min-lr", o.min_lr},
                                   {"warmup-lr", o.warmup_lr},
                                   {"decay-rate", o.decay_rate},
                                   {"weight-decay", o.weight_decay},
                                   {"clip-grad", o.clip_grad},
                                   {"opt-eps", o.opt_eps},
                                   {"mixup", o.mixup},
                                   {"cutmix", o.cutmix},
                                   {"layer-decay", o.layer_decay}}) {
    in_range(key, value, 0, kAny);
  }
  for (const auto& [key, value] : {std::pair{"momentum", o.momentum},
                                   {"smoothing", o.smoothing},
                                   {"hflip", o.hflip},
                                   {"mixup-prob", o.mixup_prob},
                                   {"mixup-switch-prob", o.mixup_switch_prob},
                                   {"model-ema-decay", o.model_ema_decay},
                                   {"fraction", o.fraction},
                                   {"test-fraction", o.test_fraction}}) {
    in_range(key, value, 0, 1);
  }
  for (const auto& [key, count, least, most] : {std::tuple{"opt-betas", o.opt_betas.size(), 2, 2},
                                                {"crop-scale", o.crop_scale.size(), 2, 2},
                                                {"crop-ratio", o.crop_ratio.size(), 2, 2},
                                                {"mean", o.mean.size(), 0, 3},
                                                {"std", o.std.size(), 0, 3},
                                                {"color-jitter", o.color_jitter.size(), 0, 4},
                                                {"rand-augment", o.rand_augment.size(), 0, 2}}) {
    TORCH_CHECK(static_cast<int>(count) >= least && static_cast<int>(count) <= most, "[train] `", key,
                "`: ", count, " numbers; expected ", least == most ? "" : "at most ", most);
  }
  TORCH_CHECK(o.model_ema_decay < 1, "[train] `model-ema-decay` 1: the average would never change");
  TORCH_CHECK(o.smoothing < 1, "[train] `smoothing` 1: nothing of the labels would be left");
  TORCH_CHECK(o.layer_decay > 0, "[train] `layer-decay` 0: only the head would train; that is `method` lp");
}

template <class T>
std::string toml_value(const T& value) {
  if constexpr (kIsOptional<T>) {
    return value ? toml_value(*value) : toml_quoted("auto");
  } else if constexpr (std::is_same_v<T, std::string>) {
    return toml_quoted(value);
  } else if constexpr (kIsVector<T>) {
    std::vector<std::string> texts;
    for (const auto& each : value) texts.push_back(toml_value(each));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  } else {
    return to_text(value);
  }
}

}  // namespace

std::vector<std::string> option_keys() {
  std::vector<std::string> keys;
  const TrainOptions defaults;
  TrainOptions::fields(
      [&](const char*, const char* key, const char*, const auto&) { keys.emplace_back(key); }, defaults);
  for (const auto& method : methods()) {
    for (const auto& option : method.options) {
      const auto key = with_dashes(option.name);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

std::string nearest_option(std::string key, const std::vector<std::string>& known) {
  static const std::map<std::string, std::string> kOthersWords{{"learning-rate", "lr"},
                                                               {"pretrained", "checkpoint"},
                                                               {"model-name-or-path", "checkpoint"},
                                                               {"output-dir", "output"},
                                                               {"num-workers", "workers"},
                                                               {"optimizer", "opt"},
                                                               {"scheduler", "sched"},
                                                               {"wd", "weight-decay"},
                                                               {"dataset", "data-dir"},
                                                               {"data", "data-dir"},
                                                               {"gpu", "device"},
                                                               {"bf16", "amp"},
                                                               {"fp16", "amp"},
                                                               {"label-smoothing", "smoothing"}};
  key = with_dashes(std::move(key));
  const auto found = kOthersWords.find(key);
  const bool ours =
      found != kOthersWords.end() && std::find(known.begin(), known.end(), found->second) != known.end();
  return ours ? found->second : nearest(key, known);
}

std::vector<std::string> method_keys() {
  auto keys = option_keys();
  const TrainOptions defaults;
  TrainOptions::fields([&](const char*, const char* key, const char*, const auto&) { std::erase(keys, key); },
                       defaults);
  return keys;
}

bool is_path(const std::string& key, const std::string& value) {
  static const std::set<std::string> kPaths{"checkpoint", "weights",   "data-dir", "class-list", "classnames",
                                            "vocab",      "templates", "head",     "output"};
  static const std::set<std::string> kHeads{"fresh", "checkpoint", "zeroshot", "text"};
  if (value.empty() || !kPaths.contains(key)) return false;
  if (key == "head") return !kHeads.contains(value);
  return key != "templates" || value.find("{}") == std::string::npos;  // else it is a sentence
}

Recipe load_recipe(const fs::path& file) { return load(file, 0); }

TrainOptions make_options(const Settings& settings) {
  TrainOptions options;
  std::set<std::string> own;
  TrainOptions::fields(
      [&](const char*, const char* key, const char*, auto& value) {
        own.insert(key);
        if (const auto text = settings.find(key); text != settings.end())
          from_text(fmt::format("[train] `{}`", key), text->second, value);
      },
      options);
  const MethodInfo& method = method_info(options.method);
  for (const auto& [key, text] : settings) {
    if (own.contains(key)) continue;
    if (const auto* option = find_option(method, key)) {
      options.method_options[option->name] = text;
      continue;
    }
    std::vector<std::string> others;
    for (const auto& other : methods()) {
      if (find_option(other, key)) others.push_back(other.name);
    }
    if (others.empty()) unknown_key("", key);
    TORCH_CHECK(false, "[train] `", key, "` is no option of ", options.method, ", but of ",
                fmt::format("{}", fmt::join(others, ", ")));
  }
  check(options);
  return options;
}

std::string to_toml(const TrainOptions& options) {
  std::string text, group;
  const auto line = [&](const std::string& key, const std::string& value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  TrainOptions::fields(
      [&](const char* of, const char* key, const char*, const auto& value) {
        if (group != of) text += fmt::format("{}# {}\n", group.empty() ? "" : "\n", of);
        group = of;
        line(key, toml_value(value));
        if (key != std::string("method")) return;
        for (const auto& [name, method_value] : options.method_options)
          line(with_dashes(name), toml_quoted(method_value));
      },
      options);
  return text;
}

}  // namespace tpgm

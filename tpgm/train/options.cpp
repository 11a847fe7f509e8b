// The table of options: text in and out, checks, traits.
#include "tpgm/train/options.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/methods/registry.h"

namespace tpgm {
namespace {

// Option of a method by its key; nullptr if it has none of the name.
const OptionInfo* find_option(const MethodInfo& method, const std::string& key) {
  for (const auto& option : method.options) {
    if (option_key(option.name) == key) return &option;
  }
  return nullptr;
}

const MethodInfo& method_info(const std::string& name) {
  if (const auto* method = find_method(name)) return *method;
  std::vector<std::string> names;
  for (const auto& method : methods()) names.push_back(method.name);
  const auto meant = did_you_mean(name, names);
  TORCH_CHECK(false, "no method '", printable(name), "'", meant, meant.empty() ? ";" : "",
              " 'tpgm list methods' has them all");
}

[[noreturn]] void unknown_key(const std::string& key) {
  TORCH_CHECK(false, "no option '", printable(key), "'", option_hint(key, option_keys()));
}

void in_range(const char* key, double value, double low, double high) {
  TORCH_CHECK(value >= low && value <= high, "`", key, "` ", value, ": must be ",
              high > 1e17 && !(value > high) ? fmt::format("{} or more", low)
                                             : fmt::format("from {} to {}", low, high));
}

constexpr double kAny = 1e18;

// A range of a random crop.
void check_range(const char* key, const std::vector<double>& range) {
  TORCH_CHECK(range[0] > 0 && range[0] <= range[1] && range[1] <= kAny, "`", key, "` ", to_text(range),
              ": must be two numbers above 0, the smaller one first");
}

void check_images(const TrainOptions& o) {
  check_range("crop-scale", o.crop_scale);
  check_range("crop-ratio", o.crop_ratio);
  if (o.crop_pct) in_range("crop-pct", *o.crop_pct, 0.01, kAny);
  for (const double mean : o.mean)
    TORCH_CHECK(std::isfinite(static_cast<float>(mean)), "`mean` ", to_text(o.mean), ": must be finite");
  for (const double std : o.std)
    TORCH_CHECK(static_cast<float>(std) > 0 && std::isfinite(static_cast<float>(std)), "`std` ",
                to_text(o.std), ": must be above 0 and finite");
  const auto& augment = o.rand_augment;
  const bool valid = augment.empty() || (augment[0] >= 0 && augment[0] < kAny);
  TORCH_CHECK(valid && (augment.size() < 2 || (augment[1] >= 0 && augment[1] <= 30)), "`rand-augment` ",
              to_text(augment),
              ": the number of operations must be 0 or more, the magnitude from 0 to 30, such as 2,9");
  for (size_t i = 0; i < o.affine.size(); ++i)
    TORCH_CHECK(o.affine[i] >= 0 && (i == 0 ? std::isfinite(o.affine[i]) : o.affine[i] < 1), "`affine` ",
                to_text(o.affine),
                ": the rotation must be 0 or more degrees, shift and scale from 0 to below 1");
  const auto& jitter = o.color_jitter;
  for (size_t i = 0; i < jitter.size(); ++i)
    TORCH_CHECK(jitter[i] >= 0 && jitter[i] <= (i == 3 ? 0.5 : kAny), "`color-jitter` ", to_text(jitter),
                ": must be 0 or more, and the hue at most 0.5");
}

void check(const TrainOptions& o) {
  in_range("epochs", static_cast<double>(o.epochs), 0, 1e6);
  for (const auto& [key, value] : {std::pair{"batch-size", o.batch_size},
                                   {"grad-accum-steps", o.grad_accum_steps},
                                   {"validation-batch-size", o.validation_batch_size.value_or(1)},
                                   {"radius-batch-size", o.radius_batch_size.value_or(1)},
                                   {"decay-epochs", o.decay_epochs},
                                   {"image-size", o.image_size.value_or(1)},
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
                                   {"head-lr", o.head_lr.number},
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
                                   {"radius-smoothing", o.radius_smoothing.value_or(0)},
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
                                                {"affine", o.affine.size(), 0, 3},
                                                {"color-jitter", o.color_jitter.size(), 0, 4},
                                                {"rand-augment", o.rand_augment.size(), 0, 2}}) {
    TORCH_CHECK(static_cast<int>(count) >= least && static_cast<int>(count) <= most, "`", key, "`: expected ",
                least == most ? "" : "at most ", most, " numbers separated by commas, not ", count);
  }
  for (const auto& [key, count] : {std::pair{"mean", o.mean.size()}, {"std", o.std.size()}})
    TORCH_CHECK(count != 2, "`", key, "`: 2 numbers; expected 1 or 3");
  check_images(o);
  for (const double beta : o.opt_betas)
    TORCH_CHECK(beta >= 0 && beta < 1, "`opt-betas` ", to_text(o.opt_betas), ": must be from 0 to below 1");
  for (const auto& [key, value] : {std::pair{"fraction", o.fraction}, {"test-fraction", o.test_fraction}})
    TORCH_CHECK(value > 0, "`", key, "` ", value, ": must be above 0");
  TORCH_CHECK(o.model_ema_decay < 1, "`model-ema-decay` 1: the average would never change");
  for (const auto& [key, value] :
       {std::pair{"smoothing", o.smoothing}, {"radius-smoothing", o.radius_smoothing.value_or(0)}})
    TORCH_CHECK(value < 1, "`", key, "` 1: nothing of the labels would be left");
  TORCH_CHECK(o.layer_decay > 0, "`layer-decay` 0: only the head would train; that is `method` lp");
}

constexpr Trait kOfMethods = Trait::kIdentity | Trait::kPerRun | Trait::kFineTuning;

// In the order of option_keys().
const std::vector<std::pair<std::string, Trait>>& all_traits() {
  static const auto all = [] {
    std::vector<std::pair<std::string, Trait>> result;
    const TrainOptions defaults;
    TrainOptions::fields([&](const char*, const char* key, Trait traits, const char*,
                             const auto&) { result.emplace_back(key, traits); },
                         defaults);
    for (const auto& method : methods()) {
      for (const auto& option : method.options) {
        const auto key = option_key(option.name);
        const auto known = [&](const auto& each) { return each.first == key; };
        if (std::none_of(result.begin(), result.end(), known)) result.emplace_back(key, kOfMethods);
      }
    }
    return result;
  }();
  return all;
}

}  // namespace

std::vector<std::string> option_keys() {
  std::vector<std::string> keys;
  for (const auto& [key, traits] : all_traits()) keys.push_back(key);
  return keys;
}

std::string option_key(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

bool has_trait(const std::string& key, Trait traits) {
  const auto& all = all_traits();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == key; });
  return found != all.end() && has_any(found->second, traits);
}

std::vector<std::string> keys_with(Trait traits) {
  auto keys = option_keys();
  std::erase_if(keys, [&](const std::string& key) { return !has_trait(key, traits); });
  return keys;
}

Settings only(const Settings& settings, Trait traits) {
  Settings result = settings;
  std::erase_if(result, [&](const auto& item) { return !has_trait(item.first, traits); });
  return result;
}

Settings without(const Settings& settings, Trait traits) {
  Settings result = settings;
  std::erase_if(result, [&](const auto& item) { return has_trait(item.first, traits); });
  return result;
}

bool is_path(const std::string& key, const std::string& value) {
  if (value.empty() || !has_trait(key, Trait::kPath)) return false;
  if (key == "templates") return value.find("{}") == std::string::npos;
  HeadSource head;
  return key != "head" || (TextOf<HeadSource>::read(value, head) && head.is(HeadSource::Kind::kFile));
}

TrainOptions make_options(const Settings& settings) try {
  TrainOptions options;
  std::set<std::string> own;
  TrainOptions::fields(
      [&](const char*, const char* key, Trait, const char*, auto& value) {
        own.insert(key);
        if (const auto text = settings.find(key); text != settings.end())
          from_text(fmt::format("`{}`", key), text->second, value);
      },
      options);
  const MethodInfo& method = method_info(options.method);
  for (const auto& [key, text] : settings) {
    if (own.contains(key)) continue;
    if (const auto* option = find_option(method, key)) {
      if (option->check) option->check(fmt::format("`{}`", key), text);
      options.method_options[option->name] = text;
      continue;
    }
    std::vector<std::string> others;
    for (const auto& other : methods()) {
      if (find_option(other, key)) others.push_back(other.name);
    }
    if (others.empty()) unknown_key(key);
    TORCH_CHECK(false, "`", key, "` is an option of ", listed(others), ", not of ", options.method);
  }
  check(options);
  return options;
} catch (...) {
  rethrow_from("make_options");
}

void check_new_run(const TrainOptions& options) {
  constexpr double kMost = 2;  // pixels are from 0 to 1
  for (const auto& [key, values] : {std::pair{"mean", &options.mean}, {"std", &options.std}}) {
    for (const double value : *values)
      TORCH_CHECK(std::abs(value) <= kMost, "`", key, "` ", to_text(*values),
                  ": pixels are from 0 to 1 here; divide values for pixels from 0 to 255 by 255");
  }
}

Settings to_settings(const TrainOptions& options) {
  Settings settings;
  TrainOptions::fields([&](const char*, const char* key, Trait, const char*,
                           const auto& value) { settings[key] = to_text(value); },
                       options);
  for (const auto& [name, value] : options.method_options) settings[option_key(name)] = value;
  return settings;
}

void add_method_defaults(TrainOptions& options) {
  const auto* method = find_method(options.method);
  if (method == nullptr) return;
  for (const auto& option : method->options) {
    if (!option.by_loop) options.method_options.emplace(option.name, option.default_value);
  }
}

}  // namespace tpgm

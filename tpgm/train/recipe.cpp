// Reads and writes recipes, and overrides them with given settings.
#include "tpgm/train/recipe.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/methods/registry.h"
#include "tpgm/train/test_paths.h"
#include "tpgm/train/toml.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// Options that version 0.1.0 did not have. It wrote all others into the recipe of a run.
constexpr std::array<std::string_view, 7> kNewerThan010 = {
    "model-ema-warmup", "image-size",     "head-name", "radius-smoothing",
    "radius-mix",       "selection-part", "affine"};

// Whether they are all options, which a run's recipe has, of version 0.1.0 or later ones.
bool are_of_a_run(const Settings& settings, bool version_010) {
  bool all = true;
  const TrainOptions defaults;
  TrainOptions::fields(
      [&](const char*, const char* key, Trait, const char*, const auto&) {
        const bool newer = std::find(kNewerThan010.begin(), kNewerThan010.end(), key) != kNewerThan010.end();
        all = all && settings.contains(key) != (newer && version_010);
      },
      defaults);
  return all;
}

// Says what was the only behavior of the version that wrote the recipe, where today's default is another.
void complete_older(Settings& settings) {
  if (!are_of_a_run(settings, /*version_010=*/true)) return;
  if (settings.at("model-ema") == "true") settings["model-ema-warmup"] = "false";
  if (settings.at("head-lr") == "auto") settings["head-lr"] = "lr";
  const auto* method = find_method(settings.at("method"));
  if (method == nullptr || !method->radius_updates) return;
  settings["radius-smoothing"] = "0";
  settings["radius-mix"] = "false";
  settings.try_emplace("every", "1");
}

Recipe load(const fs::path& file, int depth) {
  const std::string where = fmt::format("'{}': ", printable(file.string(), kMaxPath));
  TORCH_CHECK(depth < 8, where, "recipes that are each other's base");
  const fs::path folder = fs::absolute(file).parent_path();
  const auto known = option_keys();
  Recipe recipe, base;
  std::vector<std::string> tests;
  for (const auto& [name, values] : read_toml(file)) {
    const std::string key = option_key(name);
    const std::string text = fmt::format("{}", fmt::join(values, ","));
    if (key == "base") {
      base = load(folder / text, depth + 1);
    } else if (key == "sweep") {
      recipe.sweep = values;
    } else if (key == "seeds") {
      recipe.seeds = values;
    } else if (key == "choose") {
      recipe.choose = Choose::kBest;
      from_text(key, text, *recipe.choose);
    } else if (key == "take") {
      recipe.take = values;
    } else if (std::find(known.begin(), known.end(), key) == known.end()) {
      TORCH_CHECK(false, where, "no option '", printable(key), "'", option_hint(key, known));
    } else {
      if (key == "test") tests = values;
      recipe.settings[key] = is_path(key, text) ? (folder / text).lexically_normal().string() : text;
    }
  }
  // Paths that a run's recipe left relative are not those of its folder, but as they were given.
  recipe.version_010 = are_of_a_run(recipe.settings, /*version_010=*/true);
  if (recipe.version_010) {
    recipe.settings["test"] = to_text(absolute_tests(tests, {recipe.settings.at("data-dir")}));
  } else if (!are_of_a_run(recipe.settings, /*version_010=*/false) && !tests.empty()) {
    recipe.settings["test"] = to_text(absolute_tests(tests, {folder}));
  }
  complete_older(recipe.settings);
  recipe.settings.merge(base.settings);
  if (recipe.sweep.empty()) recipe.sweep = base.sweep;
  if (recipe.seeds.empty()) recipe.seeds = base.seeds;
  if (recipe.take.empty()) recipe.take = base.take;
  if (!recipe.choose) recipe.choose = base.choose;
  return recipe;
}

template <class T>
std::string toml_value(const T& value) {
  if constexpr (HasTextOf<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
    return toml_quoted(to_text(value));
  } else if constexpr (kIsOptional<T>) {
    return value ? toml_value(*value) : toml_quoted("auto");
  } else if constexpr (kIsVector<T>) {
    std::vector<std::string> texts;
    for (const auto& each : value) texts.push_back(toml_value(each));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  } else {
    return to_text(value);
  }
}

}  // namespace

Recipe load_recipe(const fs::path& file) try { return load(file, 0); } catch (...) {
  rethrow_from("load_recipe");
}

void override_with(Recipe& recipe, const Settings& given) {
  for (const auto& [key, value] : given) {
    recipe.settings[key] = value;
    for (auto* entries : {&recipe.sweep, &recipe.take}) {
      std::erase_if(*entries, [&key = key](const std::string& entry) {
        return option_key(entry.substr(0, entry.find('='))) == key;
      });
    }
    if (key == "seed") recipe.seeds.clear();
  }
}

std::string to_toml(const TrainOptions& options) {
  std::string text, group;
  const auto line = [&](const std::string& key, const std::string& value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  TrainOptions::fields(
      [&](const char* of, const char* key, Trait, const char*, const auto& value) {
        if (group != of) text += fmt::format("{}# {}\n", group.empty() ? "" : "\n", of);
        group = of;
        line(key, toml_value(value));
        if (key != std::string("method")) return;
        for (const auto& [name, method_value] : options.method_options)
          line(option_key(name), toml_quoted(method_value));
      },
      options);
  return text;
}

}  // namespace tpgm

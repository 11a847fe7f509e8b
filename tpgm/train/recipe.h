// Recipes: training options in a TOML file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/train/options.h"

namespace tpgm {

/// The name of the effective recipe in the folder of a run.
inline constexpr const char* kRunRecipe = "recipe.toml";

/// Which of several runs of a sweep is chosen by the accuracy on selection data.
enum class Choose {
  kBest,   ///< the most accurate
  kOneSe,  ///< of those within one standard error of the most accurate, the one nearest to the anchor
};
template <>
struct Keywords<Choose> {
  static constexpr std::pair<Choose, const char*> all[] = {{Choose::kBest, "best"},
                                                           {Choose::kOneSe, "one-se"}};
};

/// The content of a recipe: flat TOML with the keys of training options and of options of methods, and
/// `base`, `sweep`, `seeds`, `choose` and `take`.
struct Recipe {
  Settings settings;
  std::vector<std::string> sweep;  ///< "lr=1e-3,1e-2": values to try of a key
  std::vector<std::string> seeds;
  std::vector<std::string>
      take;  ///< in tables: values from the best run of another row: "lr=ft.lr", "weights=ft"
  std::optional<Choose> choose;  ///< empty: Choose::kBest
  bool version_010 = false;      ///< that of a run, or of one of a sweep, of version 0.1.0
};

/// Reads a recipe. `base = "common.toml"` adds the keys of that recipe which this one does not have. Paths
/// are relative to the folder of the recipe; those of the entries NAME=PATH of `test` only if they exist there.
/// '_' and '-' are the same in keys. Throws, naming file and key,
/// for keys that are unknown (with the nearest) or there twice, and for values of another type.
///
/// A recipe that version 0.1.0 wrote for a run stands for what that run did: with `model-ema`, which had no
/// warm-up then, `model-ema-warmup` is false; `head-lr` auto is `lr`; tests elsewhere are relative to `data-dir`.
Recipe load_recipe(const std::filesystem::path& file);

/// Overrides the recipe with `given` settings; their keys are neither swept nor taken any more. A given seed
/// replaces `seeds`.
void override_with(Recipe& recipe, const Settings& given);

/// A recipe with all keys, as load_recipe() reads it. Paths are written unchanged.
std::string to_toml(const TrainOptions& options);

}  // namespace tpgm

// Recipes: options in a file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/train/options.h"

namespace tpgm {

/// Flat TOML whose keys are those of the options, the methods' options, and four of its own.
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

/// What was given beats a recipe: its settings, and what it would sweep or take of the same keys. A given
/// seed takes the place of seeds.
void override_with(Recipe& recipe, const Settings& given);

/// As a recipe that load_recipe reads: every key, whatever its value. Paths are written as they are.
std::string to_toml(const TrainOptions& options);

}  // namespace tpgm

// `tpgm pretrain`: contrastive image–text training, by the trainer of `tpgm train`.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tools/command.h"
#include "tools/setting_flags.h"
#include "tools/train.h"
#include "tpgm/train/recipe.h"

namespace tpgm::tools {
namespace {

constexpr const char* kLearningRate = "0.001";  // random weights need a larger one than pre-trained weights

// The usual help of these options speaks of heads and anchors.
constexpr std::pair<const char*, const char*> kHelp[] = {
    {"--checkpoint", "Initial weights: a file, folder or run of any layout; default: random weights"},
    {"--classnames",
     "Names of the classes in order, as for 'tpgm zeroshot'; default: the folders' names, with spaces for _"},
    {"--templates",
     "Texts for a class: a file with one sentence per line and {} for the class name, or one sentence; "
     "default: the checkpoint's own, or 'a photo of a {}.'"},
    {"--vocab",
     "Vocabulary; default: the one beside the checkpoint, or byte-level if the model has 514 tokens"},
    {"--epochs", "Number of epochs to train (0: only evaluate)"}};

}  // namespace

Run configure_pretrain(CLI::App& app) {
  struct Arguments {
    SettingFlags flags;
    std::string config, resume;
    bool overwrite = false, dry_run = false, json = false;
  };
  auto args = std::make_shared<Arguments>();
  app.add_option("-c,--config", args->config,
                 "Recipe: TOML file whose keys are these flags; flags override it");
  app.add_option("--resume", args->resume, "Resume the run in this folder, bit-exactly");
  app.add_flag("--overwrite", args->overwrite, "Replace the run in the output folder, finished or not");
  app.add_flag("--dry-run", args->dry_run,
               "Print the effective recipe, the sizes of splits, steps and memory, without training");
  app.add_flag("--json", args->json, "Print the result as JSON");
  args->flags.add_all(app, keys_with(Trait::kFineTuning));
  app.get_option("--lr")->default_str(kLearningRate);
  for (const auto& [flag, help] : kHelp) app.get_option(flag)->description(help);
  return [args] {
    if (!args->resume.empty()) {
      if (!args->config.empty() || args->dry_run || args->overwrite)
        throw UsageError("--resume takes no --config, --dry-run or --overwrite");
      return resume_run(args->resume, args->flags.given(), args->json);
    }
    Recipe recipe;
    if (!args->config.empty()) recipe = load_recipe(args->config);
    override_with(recipe, args->flags.given());
    if (!recipe.sweep.empty() || !recipe.seeds.empty() || !recipe.take.empty())
      throw UsageError("the recipe has a sweep, seeds or a take: run it with tpgm train");
    for (const auto& key : keys_with(Trait::kFineTuning)) {
      if (recipe.settings.contains(key))
        throw UsageError(
            fmt::format("the recipe has '{}', which is for fine-tuning: run it with tpgm train", key));
    }
    recipe.settings["head"] = "text";
    recipe.settings["radius-fraction"] = "0";  // there are no radii
    recipe.settings.emplace("lr", kLearningRate);
    const auto options = make_options(recipe.settings);
    if (!args->dry_run)
      return train_one(options, args->overwrite ? Start::kOverwrite : Start::kNew, args->json);
    print_plan(options);
    return 0;
  };
}

}  // namespace tpgm::tools

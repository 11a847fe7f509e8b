// `tpgm list`: models, methods and recipes, from the registries.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/shared_files.h"
#include "tools/text.h"
#include "tpgm/methods/registry.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/study/tables.h"
#include "tpgm/weights/names.h"

namespace tpgm::tools {
namespace {

nlohmann::ordered_json methods_as_json() {
  auto result = nlohmann::ordered_json::array();
  for (const auto& method : methods()) {
    auto options = nlohmann::ordered_json::array();
    for (const auto& option : method.options) {
      options.push_back({{"name", option.name},
                         {"type", option.type},
                         {"default", option.default_value},
                         {"help", option.help}});
    }
    result.push_back({{"name", method.name},
                      {"title", method.title},
                      {"summary", method.summary},
                      {"reference", method.reference},
                      {"options", options}});
  }
  return result;
}

void print_methods() {
  for (const auto& method : methods()) {
    fmt::print("{:<8} {}\n", method.name, method.summary);
    if (!method.reference.empty()) fmt::print("{:<8} {}\n", "", method.reference);
    for (const auto& option : method.options) {
      fmt::print("    {:<15} {:<18} {:<8} {}\n", option.name, option.type,
                 option.default_value.empty() ? "none" : option.default_value, option.help);
    }
  }
}

std::vector<std::string> layout_names(const Family& family) {
  std::vector<std::string> names;
  for (const auto layout : layouts_of(family)) names.push_back(to_text(layout));
  return names;
}

nlohmann::ordered_json models_as_json() {
  auto result = nlohmann::ordered_json::array();
  for (const auto& model : models()) {
    ModelConfig config = parse_model(model.name);
    const ModelCost cost = cost_of(config);
    set_defaults(config);
    const auto [mean, std] = *config.family->normalization;
    result.push_back({{"name", model.name},
                      {"aliases", model.aliases},
                      {"model", to_text(config)},
                      {"parameters", cost.parameters},
                      {"text_parameters", cost.text_parameters},
                      {"gflops", cost.gflops},
                      {"image_size", *config.image_size},
                      {"mean", mean},
                      {"std", std},
                      {"layouts", layout_names(*config.family)}});
  }
  return result;
}

void print_families() {
  fmt::print(
      "\nAny size in between: FAMILY:SIZE=VALUE,..., such as "
      "vit:width=192,depth=6,heads=3,patch=4,image_size=32\n");
  for (const Family& family : families()) {
    ModelConfig config;
    config.family = &family;
    set_defaults(config);
    fmt::print("{}{}\n", family.name, family.is_file() ? ":FILE" : "");
    if (family.is_file()) fmt::print("    {:<15} {:<12} {}\n", "FILE", "none", *family.file);
    const auto print = [](const std::string& name, const char* help, const auto& value) {
      fmt::print("    {:<15} {:<12} {}\n", name, value ? to_text(*value) : "none", help);
    };
    visit_sizes(family, print, config);
  }
}

void print_models() {
  fmt::print("{:<18}{:>14}{:>8}{:>7}  {:<24}{:<24}{:<34}{}\n", "model", "parameters", "GFLOPs", "image",
             "mean", "std", "checkpoint layouts", "also called");
  for (const auto& model : models()) {
    ModelConfig config = parse_model(model.name);
    const ModelCost cost = cost_of(config);
    set_defaults(config);
    const auto [mean, std] = *config.family->normalization;
    const std::string text = cost.text_parameters > 0
                                 ? fmt::format(" + {:.1f}", 1e-6 * static_cast<double>(cost.text_parameters))
                                 : "";
    fmt::print("{:<18}{:>14}{:>8.1f}{:>7}  {:<24}{:<24}{:<34}{}\n", model.name,
               fmt::format("{:.1f}{} M", 1e-6 * static_cast<double>(cost.parameters), text), cost.gflops,
               *config.image_size, fmt::format("{:.3f} {:.3f} {:.3f}", mean[0], mean[1], mean[2]),
               fmt::format("{:.3f} {:.3f} {:.3f}", std[0], std[1], std[2]),
               fmt::format("{}", fmt::join(layout_names(*config.family), ", ")),
               fmt::format("{}", fmt::join(model.aliases, ", ")));
  }
  fmt::print(
      "\nParameters: of the image tower + of the text tower. GFLOPs: multiply-adds of one image.\n"
      "Layouts: openai is open_clip's too; torchvision's ResNets are timm's and MoCo-v3's, timm's ViTs are "
      "MoCo-v3's and MAE's.\n");
  print_families();
}

std::vector<RecipeInfo> recipes() {
  const auto roots = recipe_roots();
  return roots.empty() ? std::vector<RecipeInfo>() : list_recipes(roots.front());
}

nlohmann::ordered_json recipes_as_json() {
  auto result = nlohmann::ordered_json::array();
  for (const auto& recipe : recipes()) {
    result.push_back({{"name", recipe.name},
                      {"kind", recipe.table ? "table" : "recipe"},
                      {"about", recipe.about},
                      {"path", recipe.path.string()}});
  }
  return result;
}

void print_recipes() {
  const auto all = recipes();
  TORCH_CHECK(!all.empty(),
              "[list] there are no recipes here: they are looked for in ./recipes and beside this program");
  for (const bool table : {true, false}) {
    fmt::print("{}\n", table ? "tables: tpgm reproduce NAME" : "\nrecipes: tpgm train -c FILE");
    for (const auto& recipe : all) {
      if (recipe.table != table) continue;
      auto file = recipe.path.lexically_proximate(std::filesystem::current_path()).string();
      if (file.starts_with("..")) file = recipe.path.string();
      fmt::print("    {:<30} {}\n", table ? recipe.name : file, recipe.about);
    }
  }
}

}  // namespace

Run configure_list(CLI::App& app) {
  struct Options {
    std::string what;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("WHAT", options->what, "What to list: models, methods or recipes")
      ->required()
      ->check(CLI::IsMember({"models", "methods", "recipes"}));
  app.add_flag("--json", options->json, "Print JSON");
  return [options] {
    const auto& what = options->what;
    if (options->json) {
      const auto json = what == "models"    ? models_as_json()
                        : what == "methods" ? methods_as_json()
                                            : recipes_as_json();
      fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      what == "models" ? print_models() : what == "methods" ? print_methods() : print_recipes();
    }
    return 0;
  };
}

}  // namespace tpgm::tools

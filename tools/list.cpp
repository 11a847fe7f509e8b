// `tpgm list methods`: what there is, from the registries.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tpgm/methods/registry.h"

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
    result.push_back({{"name", method.name}, {"summary", method.summary}, {"options", options}});
  }
  return result;
}

void print_methods() {
  for (const auto& method : methods()) {
    fmt::print("{:<8} {}\n", method.name, method.summary);
    for (const auto& option : method.options) {
      fmt::print("    {:<15} {:<18} {:<8} {}\n", option.name, option.type,
                 option.default_value.empty() ? "none" : option.default_value, option.help);
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
  app.add_option("what", options->what, "What to list: methods")
      ->required()
      ->check(CLI::IsMember({"methods"}));
  app.add_flag("--json", options->json, "For a program to read");
  return [options] {
    if (options->json) {
      fmt::print("{}\n", methods_as_json().dump(2));
    } else {
      print_methods();
    }
    return 0;
  };
}

}  // namespace tpgm::tools

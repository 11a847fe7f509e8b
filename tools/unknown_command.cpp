// The first word of a command line, where it is no command.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tools/complaint.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"

namespace tpgm::tools {
namespace {

// Words for commands that letters do not lead to.
constexpr std::pair<const char*, const char*> kOtherCommands[] = {
    {"version", "--version"},
    {"finetune", "train"},
    {"fine-tune", "train"},
    {"tune", "train"},
    {"evaluate", "eval"},
    {"validate", "eval"},
    {"test", "eval"},
    {"merge", "wise"},
    {"interpolate", "wise"},
    {"export", "convert"},
    {"models", "list models"},
    {"benchmark", "bench"},
    {"methods", "list methods"},
    {"recipes", "list recipes"},
};

}  // namespace

std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  std::string command = "tpgm";
  for (size_t i = 0; i < words.size() && !words[i].starts_with('-'); ++i) {
    std::vector<std::string> names;
    for (const auto* sub : at->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    if (names.empty()) return "";
    const std::string& word = words[i];
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      std::string hint = did_you_mean(word, names);
      for (const auto& [theirs, ours] : kOtherCommands) {
        if (at == &app && word == theirs) hint = fmt::format("; did you mean '{}'?", ours);
      }
      return fmt::format("tpgm: no command '{}'{}{} {} --help lists them\n",
                         printable(fmt::format("{}", fmt::join(words.begin(), words.begin() + i + 1, " "))),
                         hint, hint.empty() ? ";" : "", command);
    }
    at = at->get_subcommand(word);
    command += " " + word;
  }
  return "";
}

}  // namespace tpgm::tools

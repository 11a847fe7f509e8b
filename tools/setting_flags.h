// Flags that are keys of recipes, made from the table of TrainOptions and the options of methods.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tpgm/train/options.h"

namespace tpgm::tools {

/// Types, defaults and checks are those of TrainOptions. Lists are separated by commas or spaces; what can be
/// on or off has a flag for each, --amp and --no-amp.
class SettingFlags {
 public:
  /// "-b,--batch-size"; `help` in place of the table's where a command means something narrower.
  void add(CLI::App& app, const std::string& names, const std::string& help = "");
  /// How images are seen and read: --crop-pct, --mean, --std, --interpolation, --decode, --workers,
  /// --on-bad-image, --max-pixels.
  void add_images(CLI::App& app);
  /// All of them, and those of the methods, in groups; but for the keys in `without`.
  void add_all(CLI::App& app, const std::vector<std::string>& without = {});
  /// Those that were on the command line.
  Settings given() const;

 private:
  struct Flag {
    std::string text;
    bool on = false, is_switch = false;
    CLI::Option* option = nullptr;
  };
  template <class T>
  CLI::Option* add_option(CLI::App& app, const std::string& names, const std::string& help, const T& value);

  std::map<std::string, Flag> flags_;  // by key; addresses stay
};

}  // namespace tpgm::tools

// Flags that are keys of recipes, made from the table of TrainOptions and the options of methods.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tpgm/train/options.h"

namespace tpgm::tools {

/// Types, defaults and checks are those of TrainOptions. Lists are separated by commas. A switch
/// has two flags, such as --amp and --no-amp.
class SettingFlags {
 public:
  /// Adds one, such as "-b,--batch-size". `help` replaces that of the table if the command needs another.
  void add(CLI::App& app, const std::string& names, const std::string& help = "");
  /// Adds those of Trait::kImage: --crop-pct, --mean, --std, --interpolation, --decode, --workers,
  /// --on-bad-image, --max-pixels.
  void add_images(CLI::App& app);
  /// Adds all options of the table and of the methods, in groups, except the keys in `without`.
  void add_all(CLI::App& app, const std::vector<std::string>& without = {});
  /// The settings that were on the command line.
  Settings given() const;

 private:
  struct Flag {
    std::string text;
    bool on = false, is_switch = false;
    CLI::Option* option = nullptr;
  };
  template <class T>
  CLI::Option* add_option(CLI::App& app, const std::string& names, const std::string& help, const T& value);

  std::map<std::string, Flag> flags_;  // by key; a std::map, because CLI11 keeps addresses of its values
};

}  // namespace tpgm::tools

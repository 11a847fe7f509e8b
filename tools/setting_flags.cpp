// Adds flags from the table of options.
#include "tools/setting_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>

#include "tpgm/methods/registry.h"

namespace tpgm::tools {
namespace {

template <class T>
const char* cli_type() {
  if constexpr (kIsOptional<T>) {
    return cli_type<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, double>) {
    return "FLOAT";
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return "INT";
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return "FLOAT,...";
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return "TEXT,...";
  } else {
    return "TEXT";
  }
}

// Says what is wrong with a value; empty if nothing is. CLI11 puts the flag in front, so the key is left out.
std::string complaint(const std::string& key, const std::string& text) {
  try {
    check_new_run(make_options({{key, text}}));
  } catch (const c10::Error& error) {
    std::string message = error_text(error);
    const std::string name = "`" + key + "`";
    if (message.starts_with(name)) message = message.substr(name.size());
    return message.substr(std::min(message.find_first_not_of(": "), message.size()));
  }
  return "";
}

// The type of a method's option as the other flags show theirs; keywords remain.
std::string shown_type(const std::string& type) {
  if (type == "float") return "FLOAT";
  if (type == "int") return "INT";
  if (type == "bool") return "true|false";
  return type == "globs" ? "GLOB,..." : type;
}

// An option of one or several methods, with the help of each.
struct MethodOption {
  std::string type;
  std::vector<decltype(OptionInfo::check)> checks;                     // of each method
  std::vector<std::pair<std::string, std::vector<std::string>>> uses;  // help with default; methods

  std::string help() const {
    std::vector<std::string> texts;
    for (const auto& [text, names] : uses)
      texts.push_back(fmt::format("{}: {}", fmt::join(names, ", "), text));
    return fmt::format("{}", fmt::join(texts, "; "));
  }

  // Says what is wrong with a value that none of the methods takes; empty if one does.
  std::string complaint(const std::string& text) const {
    std::string wrong;
    for (const auto& check : checks) {
      try {
        if (check) check("value", text);
        return "";
      } catch (const c10::Error& error) {
        wrong = error_text(error);
        if (wrong.starts_with("value ")) wrong.erase(0, 6);  // CLI11 puts the flag in front
      }
    }
    return wrong;
  }
};

}  // namespace

template <class T>
CLI::Option* SettingFlags::add_option(CLI::App& app, const std::string& names, const std::string& help,
                                      const T& value) {
  const std::string key = names.substr(names.rfind("--") + 2), text = with_flags(help);
  Flag& flag = flags_[key];
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>) {
    const auto off = key.starts_with("no-") ? key.substr(3) : "no-" + key;
    flag.is_switch = true;
    flag.option = app.add_flag(fmt::format("{},!--{}", names, off), flag.on,
                               fmt::format("{}; default: {}", text, to_text(value)));
  } else {
    // CLI11 checks the items of a list one by one, but its callback gets them joined.
    const auto set = [key, &flag](const std::string& joined) {
      flag.text = joined;
      if (const auto wrong = complaint(key, joined); !wrong.empty())
        throw CLI::ValidationError("--" + key, wrong);
    };
    flag.option = app.add_option_function<std::string>(names, set, text)->type_name(cli_type<T>());
    if constexpr (kIsVector<T>) flag.option->join(',');
    flag.option->default_str(to_text(value));
  }
  return flag.option;
}

void SettingFlags::add(CLI::App& app, const std::string& names, const std::string& help) {
  const std::string key = names.substr(names.rfind("--") + 2);
  const TrainOptions defaults;
  TrainOptions::fields(
      [&](const char*, const char* each, Trait, const char* usual_help, const auto& value) {
        if (key == each) add_option(app, names, help.empty() ? usual_help : help, value);
      },
      defaults);
  TORCH_CHECK(flags_.contains(key), "[SettingFlags] no option '", key, "'");
}

void SettingFlags::add_images(CLI::App& app) {
  for (const auto& key : keys_with(Trait::kImage)) {
    // The help in the table distinguishes training images from others.
    add(app, fmt::format("{}--{}", key == "workers" ? "-j," : "", key),
        key == "decode" ? "Image decoding: exact (Pillow's pixels) or fast (DCT scaling)" : "");
  }
}

void SettingFlags::add_all(CLI::App& app, const std::vector<std::string>& without) {
  const auto left_out = [&](const std::string& key) {
    return std::find(without.begin(), without.end(), key) != without.end();
  };
  const TrainOptions defaults;
  TrainOptions::fields(
      [&](const char* group, const std::string& key, Trait, const char* help, const auto& value) {
        if (left_out(key)) return;
        const char* letter = key == "batch-size" ? "-b," : key == "output" ? "-o," : "";
        add_option(app, fmt::format("{}--{}", letter, key), help, value)->group(group);
      },
      defaults);

  std::map<std::string, MethodOption> options;
  for (const auto& method : methods()) {
    for (const auto& option : method.options) {
      const std::string key = option_key(option.name);
      if (flags_.contains(key) || left_out(key) || option.by_loop) continue;
      auto& all = options[key];
      all.type = option.type;
      all.checks.push_back(option.check);
      const std::string text = fmt::format(
          "{}{}", option.help,
          option.default_value.empty() ? "" : fmt::format(" (default: {})", option.default_value));
      auto use = std::find_if(all.uses.begin(), all.uses.end(),
                              [&](const auto& each) { return each.first == text; });
      if (use == all.uses.end()) use = all.uses.insert(use, {text, {}});
      use->second.push_back(method.name);
    }
  }
  for (const auto& [key, option] : options) {
    auto& flag = flags_[key];
    flag.option = app.add_option("--" + key, flag.text, with_flags(option.help()))
                      ->type_name(shown_type(option.type))
                      ->check([option = option](const std::string& text) { return option.complaint(text); })
                      ->group("Method");
  }
}

Settings SettingFlags::given() const {
  Settings settings;
  for (const auto& [key, flag] : flags_) {
    if (flag.option->count() == 0) continue;
    settings[key] = flag.is_switch ? to_text(flag.on) : flag.text;
  }
  return settings;
}

}  // namespace tpgm::tools

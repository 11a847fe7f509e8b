#include "tools/complaint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/train/options.h"

namespace tpgm::tools {
namespace {

using Words = std::vector<std::string>;

bool is_option(const std::string& word) {
  return word.size() > 1 && word.front() == '-' && !parse_number<double>(word);
}

Words option_names(const CLI::App& command) {
  Words names;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// The number of dashes in front of `word` that are not ASCII, such as those of word processors.
size_t typographic_dashes(const std::string& word) {
  size_t count = 0;
  for (std::string_view rest = word; rest.size() >= 3; rest.remove_prefix(3), ++count) {
    const bool dash = (rest.starts_with("\xe2\x80") && rest[2] >= '\x90' && rest[2] <= '\x95') ||
                      rest.starts_with("\xe2\x88\x92");
    if (!dash) break;
  }
  return count;
}

std::string unknown_option(const CLI::App& command, const std::string& word) {
  const auto flag = word.substr(0, word.find('='));
  const auto key = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const bool one_letter = key.size() == 1 && !flag.starts_with("--");
  return fmt::format("no option '{}'{}", printable(flag),
                     one_letter ? "" : option_hint(key, option_names(command), "--"));
}

// "--test a=x,b=y" for "--test a=x b=y" at `at`; empty if that is not an option of a list with several values.
std::string with_commas(const CLI::App& command, const Words& words, size_t at) {
  const auto* option = command.get_option_no_throw(words[at]);
  if (option == nullptr || option->get_type_name().find(",...") == std::string::npos) return "";
  Words values;
  for (size_t i = at + 1; i < words.size() && !is_option(words[i]); ++i) values.push_back(words[i]);
  return values.size() < 2 ? "" : fmt::format("{} {}", words[at], fmt::join(values, ","));
}

std::string unexpected(const CLI::App& command, const Words& words, const std::string& word) {
  std::string text = fmt::format("unexpected argument '{}'", printable(word, kMaxPath));
  if (const size_t dashes = typographic_dashes(word); dashes > 0) {
    auto key = word.substr(3 * dashes);
    key = key.substr(std::min(key.find_first_not_of('-'), key.size()));
    key = key.substr(0, key.find('='));
    return text + "; it begins with a dash that is not ASCII" +
           did_you_mean(key, option_names(command), "--");
  }
  const auto found = std::find(words.begin(), words.end(), word);
  for (auto at = static_cast<size_t>(found - words.begin()); at-- > 0 && found != words.end();) {
    if (!is_option(words[at])) continue;
    if (const auto list = with_commas(command, words, at); !list.empty())
      return fmt::format("{}; values of a list are separated by commas: {}", text, printable(list, kMaxPath));
    break;
  }
  std::error_code error;
  if (command.get_option_no_throw("--data-dir") != nullptr && std::filesystem::exists(word, error))
    text += fmt::format("; a data set is given with --data-dir {}", printable(word, kMaxPath));
  return text;
}

// The keywords that the option takes; none if it takes anything else.
Words keywords(const CLI::Option& option) {
  Words all;
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  if (begin != std::string::npos && type.ends_with('}'))
    from_text("", type.substr(begin + 1, type.size() - begin - 2), all);
  return all;
}

std::string kind_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") ? "an integer"
         : type.starts_with("FLOAT")                         ? "a number"
                                                             : type;
}

std::string missing(const CLI::App& command, const std::string& text) {
  if (text.starts_with("A subcommand")) {
    Words names;
    for (const auto* sub : command.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    return fmt::format("a command is needed: {}", listed(names, "or"));
  }
  const auto* option = command.get_option_no_throw(text.substr(0, text.find(' ')));
  const Words words = option == nullptr ? Words() : keywords(*option);
  return words.empty() ? text : fmt::format("{}: {}", text, listed(words, "or"));
}

// "0.000000" → "0".
std::string number_text(const std::string& text) {
  if (const auto integer = parse_number<int64_t>(text)) return text;
  const auto number = parse_number<double>(text);
  return number ? fmt::format("{:g}", *number) : text;
}

// The text of a check that failed, after "--NAME: ".
std::string bad_value(const CLI::Option& option, const std::string& text) {
  if (const size_t at = text.find(" not in {"); at != std::string::npos) {
    const auto words = keywords(option);
    const auto value = text.substr(0, at);
    return fmt::format("must be {}, not '{}'{}", listed(words, "or"), printable(value),
                       did_you_mean(value, words));
  }
  const size_t range = text.find(" not in range "), to = text.rfind(" to ");
  if (!text.starts_with("Value ") || range == std::string::npos || to == std::string::npos) return text;
  const auto value = text.substr(6, range - 6), least = text.substr(range + 14, to - range - 14),
             most = text.substr(to + 4);
  const bool open = parse_number<double>(most).value_or(0) > 1e17;
  return fmt::format("must be {} from {}{}, not '{}'", kind_of(option), number_text(least),
                     open ? "" : " to " + number_text(most), printable(value));
}

}  // namespace

std::string complaint_of(const CLI::ParseError& error, const CLI::App& command, const Words& words) {
  const std::string text = error.what();
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr,
             required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (extras || required) {
    // First of all: an unknown option shifts what comes after it.
    const auto remaining = command.remaining();
    for (const auto& word : remaining) {
      if (is_option(word)) return unknown_option(command, word);
    }
    if (required) return missing(command, text);
    return remaining.empty() ? text : unexpected(command, words, remaining.front());
  }
  constexpr std::string_view kConvert = "Could not convert: ";
  if (const size_t equals = text.find(" = "); text.starts_with(kConvert) && equals != std::string::npos) {
    const auto name = text.substr(kConvert.size(), equals - kConvert.size()), value = text.substr(equals + 3);
    const auto* option = command.get_option_no_throw(name);
    if (option == nullptr) return text;
    if (option->get_expected_max() == 0) return fmt::format("{} takes no value", name);
    return fmt::format("{}: must be {}, not '{}'", name, kind_of(*option), printable(value));
  }
  const size_t colon = text.find(": ");
  const auto name = text.substr(0, colon);
  const auto* option = colon == std::string::npos ? nullptr : command.get_option_no_throw(name);
  if (option == nullptr) return text;
  if (text.ends_with(" missing")) return name + " needs a value";
  std::string complaint = name + ": " + bad_value(*option, text.substr(colon + 2));
  const auto at = std::find(words.begin(), words.end(), name);
  const auto list =
      at == words.end() ? "" : with_commas(command, words, static_cast<size_t>(at - words.begin()));
  const bool of_commas = !list.empty() && complaint.find("separated by commas") != std::string::npos;
  return of_commas ? fmt::format("{}; write {}", complaint, printable(list, kMaxPath)) : complaint;
}

}  // namespace tpgm::tools

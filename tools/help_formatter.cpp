#include "tools/help_formatter.h"

#include <algorithm>
#include <string>

namespace tpgm::tools {
namespace {

// "FLOAT:NONNEGATIVE" → "FLOAT", "TEXT:{auto,cpu,cuda}" → "auto|cpu|cuda".
std::string type_of(const CLI::Option& option) {
  const std::string full = option.get_type_name();
  const size_t colon = full.find(':');
  if (colon == std::string::npos) return full;
  const std::string check = full.substr(colon + 1);
  if (check.size() < 2 || check.front() != '{' || check.back() != '}') return full.substr(0, colon);
  std::string keywords = check.substr(1, check.size() - 2);
  std::replace(keywords.begin(), keywords.end(), ',', '|');
  return keywords;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("REQUIRED", "(required)"); }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = Formatter::make_option_name(option, is_positional);
    if (const size_t at = name.find("{false}"); at != std::string::npos) name.erase(at, 7);
    return name;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = Formatter::make_option_opts(option);
    const std::string full = option->get_type_name();
    if (const size_t at = text.find(full); !full.empty() && at != std::string::npos)
      text.replace(at, full.size(), type_of(*option));
    return text;
  }
};

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace tpgm::tools

// Sets, fills in, compares and writes the sizes of a model by name.
#include "tpgm/models/config.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>

#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/text.h"
#include "tpgm/models/families.h"

namespace tpgm {
namespace {

// What a size may be, for errors.
template <class T>
std::string expected(const Size& size) {
  if constexpr (std::is_enum_v<T>) {
    std::vector<const char*> words;
    for (const auto& [each, word] : Keywords<T>::all) words.push_back(word);
    return fmt::format("{}", fmt::join(words, " or "));
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<T, double>) {
    return "a number between 0 and 1";
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return fmt::format("a whole number from {} to {}", size.least, size.most);
  } else {
    return "text";
  }
}

template <class T>
void set(const Size& size, const std::string& text, std::optional<T>& value) {
  if (size.check) size.check(text);
  bool valid = read_value(text, value.emplace());
  if constexpr (std::is_same_v<T, double>) valid = valid && *value > 0 && *value < 1;
  if constexpr (std::is_same_v<T, int64_t>) valid = valid && *value >= size.least && *value <= size.most;
  TORCH_CHECK(valid, "[parse_model] ", size.name, "=", text, ": expected ", expected<T>(size));
}

}  // namespace

void set_size(ModelConfig& config, const std::string& name, const std::string& value) {
  std::vector<std::string> known;
  for (const Size& size : config.family->sizes) {
    if (size.name == name) {
      std::visit([&](const auto member) { set(size, value, config.*member); }, size.member);
      return;
    }
    known.push_back(size.name);
  }
  const auto meant = did_you_mean(name, known);
  TORCH_CHECK(false, "[parse_model] a ", config.family->name, " has no '", name, "'", meant,
              meant.empty() ? "; it has " : " It has ", fmt::format("{}", fmt::join(known, ", ")));
}

void fill(ModelConfig& config, const ModelConfig& other) {
  TORCH_INTERNAL_ASSERT(config.family == other.family);
  const auto visit = [](const std::string&, const char*, auto& mine, const auto& theirs) {
    if (!mine) mine = theirs;
  };
  visit_sizes(*config.family, visit, config, other);
}

std::vector<Conflict> conflicts(const ModelConfig& ours, const ModelConfig& theirs) {
  TORCH_INTERNAL_ASSERT(ours.family == theirs.family);
  std::vector<Conflict> found;
  const auto visit = [&](const std::string& name, const char*, const auto& mine, const auto& other) {
    if (mine && other && *mine != *other) found.push_back({name, to_text(*mine), to_text(*other)});
  };
  visit_sizes(*ours.family, visit, ours, theirs);
  return found;
}

std::string to_text(const ModelConfig& config) {
  std::vector<std::string> sizes;
  const auto visit = [&](const std::string& name, const char*, const auto& member) {
    if (member) sizes.push_back(fmt::format("{}={}", name, to_text(*member)));
  };
  visit_sizes(*config.family, visit, config);
  std::string text = config.family->name;
  if (config.family->is_file()) text += ":" + config.file;
  return sizes.empty() ? text : fmt::format("{}:{}", text, fmt::join(sizes, ","));
}

std::vector<int64_t> parse_layers(const std::string& text) {
  std::vector<int64_t> layers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('-', begin), text.size());
    const auto count = parse_number<int64_t>(std::string_view(text).substr(begin, end - begin));
    TORCH_CHECK(count && *count > 0 && *count <= 1000 && layers.size() < kMaxStages,
                "[parse_model] layers=", text, ": expected numbers of blocks such as 3-4-6-3");
    layers.push_back(*count);
    begin = end + 1;
  }
  return layers;
}

}  // namespace tpgm

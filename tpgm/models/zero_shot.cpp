#include "tpgm/models/zero_shot.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tpgm/core/names.h"
#include "tpgm/io/file.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/io/untrusted.h"

namespace tpgm {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPlaceholder = "{}";
constexpr std::string_view kBlank = " \t\r\n";

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

// Without blank lines at the end.
std::vector<std::string> lines_of(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // the mark that some editors put first
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> folder_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator item(folder, failed);
       !failed && item != std::filesystem::directory_iterator(); item.increment(failed)) {
    std::error_code error;
    const std::string name = item->path().filename().string();
    if (item->is_directory(error) && !name.starts_with('.')) names.push_back(name);
  }
  TORCH_CHECK(!failed, "[load_class_names] cannot read the folder '", folder.string(),
              "': ", failed.message());
  TORCH_CHECK(!names.empty(), "[load_class_names] the folder '", folder.string(),
              "' has no folders in it; expected one for each class");
  std::sort(names.begin(), names.end());
  for (auto& name : names) std::replace(name.begin(), name.end(), '_', ' ');
  return names;
}

std::string name_in(const Json& value, const std::string& where) {
  const Json& name = value.is_array() && !value.empty() ? value.back() : value;
  TORCH_CHECK(name.is_string(), "[load_class_names] ", where, " is ",
              printable(value.dump(-1, ' ', true), 60), ", expected a name");
  return trimmed(name.get<std::string>());
}

std::vector<std::string> names_in(const Json& json, const std::string& file) {
  std::vector<std::string> names;
  if (json.is_array()) {
    for (const auto& value : json)
      names.push_back(name_in(value, fmt::format("'{}': entry {}", file, names.size())));
    return names;
  }
  std::vector<std::pair<std::string, std::string>> items;
  for (const auto& [key, value] : json.items()) {
    items.emplace_back(key, name_in(value, fmt::format("'{}': '{}'", file, printable(key))));
  }
  const bool numbers = std::all_of(items.begin(), items.end(), [](const auto& item) {
    return !item.first.empty() && item.first.find_first_not_of("0123456789") == std::string::npos;
  });
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    return numbers ? natural_less(a.first, b.first) : a.first < b.first;
  });
  for (auto& item : items) names.push_back(std::move(item.second));
  return names;
}

void check_vocabulary(const ClipText& text, const Tokenizer& tokenizer) {
  const auto& options = text.options();
  TORCH_CHECK(tokenizer.vocab_size() == options.vocab(), "[make_zero_shot] the vocabulary has ",
              tokenizer.vocab_size(), " tokens, the model ", options.vocab(),
              "; give the vocabulary that it was trained with");
  const int64_t end = options.end_of_text() < 0 ? options.vocab() - 1 : options.end_of_text();
  TORCH_CHECK(tokenizer.end_of_text() == end, "[make_zero_shot] end-of-text is token ",
              tokenizer.end_of_text(), " of the vocabulary, and ", end,
              " of the model; give the vocabulary that it was trained with");
}

std::string filled(const std::string& sentence, const std::string& name) {
  std::string result;
  size_t begin = 0;
  for (size_t at = sentence.find(kPlaceholder); at != std::string::npos;
       at = sentence.find(kPlaceholder, begin)) {
    result += sentence.substr(begin, at - begin) + name;
    begin = at + kPlaceholder.size();
  }
  return result + sentence.substr(begin);
}

}  // namespace

std::vector<std::string> load_class_names(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return folder_names(path);
  const MappedFile file(path, "load_class_names");
  const std::string text = trimmed(file.bytes());
  std::vector<std::string> names;
  const bool is_json = text.starts_with('[') || text.starts_with('{');
  if (is_json) {
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    TORCH_CHECK(!json.is_discarded(), "[load_class_names] '", path.string(), "' begins as JSON and is none");
    names = names_in(json, path.string());
  } else {
    names = lines_of(file.bytes());
  }
  TORCH_CHECK(!names.empty(), "[load_class_names] '", path.string(), "' has no names in it");
  for (size_t i = 0; i < names.size(); ++i) {
    TORCH_CHECK(!names[i].empty(), "[load_class_names] '", path.string(), "': the name ",
                is_json ? fmt::format("of class {}", i) : fmt::format("in line {}", i + 1),
                " is empty; every class needs one");
  }
  return names;
}

std::vector<std::string> load_templates(const std::filesystem::path& path) {
  const MappedFile file(path, "load_templates");
  std::vector<std::string> templates;
  size_t number = 0;
  for (auto& line : lines_of(file.bytes())) {
    ++number;
    if (line.empty()) continue;
    TORCH_CHECK(line.find(kPlaceholder) != std::string::npos, "[load_templates] '", path.string(), "': line ",
                number, ", '", printable(line), "', has no {} for the name of a class");
    templates.push_back(std::move(line));
  }
  TORCH_CHECK(!templates.empty(), "[load_templates] '", path.string(),
              "' has no templates in it; expected lines such as 'a photo of a {}.'");
  return templates;
}

ZeroShotHead make_zero_shot(ClipText& text, const at::Tensor& logit_scale, const Tokenizer& tokenizer,
                            const std::vector<std::string>& class_names,
                            const std::vector<std::string>& templates, const ZeroShotOptions& options,
                            const std::function<void(size_t)>& progress) {
  TORCH_CHECK(!class_names.empty() && !templates.empty(), "[make_zero_shot] there are ", class_names.size(),
              " classes and ", templates.size(), " templates; at least one of each is needed");
  TORCH_CHECK(options.batch_size() > 0, "[make_zero_shot] batch_size is ", options.batch_size(),
              ", expected at least 1");
  check_vocabulary(text, tokenizer);
  const at::NoGradGuard no_grad;
  const int64_t context = text.options().context();
  ZeroShotHead head{{}, class_names, templates};
  at::Tensor sums = at::zeros({static_cast<int64_t>(class_names.size()), text.options().embedding()},
                              logit_scale.options());
  const size_t total = class_names.size() * templates.size();
  for (size_t begin = 0; begin < total; begin += static_cast<size_t>(options.batch_size())) {
    const size_t end = std::min(total, begin + static_cast<size_t>(options.batch_size()));
    std::vector<std::string> sentences;
    std::vector<int64_t> classes;
    for (size_t i = begin; i < end; ++i) {
      classes.push_back(static_cast<int64_t>(i / templates.size()));
      sentences.push_back(filled(templates[i % templates.size()], class_names[i / templates.size()]));
      if (static_cast<int64_t>(tokenizer.encode(sentences.back()).size()) + 2 > context) ++head.truncated;
    }
    const at::Tensor tokens = tokenizer.encode_batch(sentences, context).to(logit_scale.device());
    const at::Tensor embedded = normalized(text.forward(tokens)).to(sums.scalar_type());
    sums.index_add_(0, at::tensor(classes).to(logit_scale.device()), embedded);
    if (progress) progress(end - begin);
  }
  // The length of a sum is not that of a mean, but both have one direction.
  head.weight = (normalized(sums) * logit_scale.exp()).cpu();
  TORCH_CHECK(head.weight.isfinite().all().item<bool>(),
              "[make_zero_shot] the head is not finite: does the checkpoint have NaNs? See 'tpgm inspect'");
  return head;
}

void save_zero_shot(const ZeroShotHead& head, const std::filesystem::path& file, Metadata metadata) {
  metadata["tpgm.classes"] = nlohmann::json(head.class_names).dump();
  metadata["tpgm.templates"] = nlohmann::json(head.templates).dump();
  StateDict tensors("Tensor");
  tensors.insert("head.weight", head.weight);
  save_safetensors(tensors, file, metadata);
}

ZeroShotHead load_zero_shot(const std::filesystem::path& file) {
  const SafetensorsFile opened(file);
  TORCH_CHECK(opened.entries().contains("head.weight") && opened.entries().size() == 1, "[load_zero_shot] '",
              file.string(), "' is no zero-shot head; 'tpgm zeroshot' makes one");
  ZeroShotHead head{opened.tensor("head.weight"), {}, {}};
  const auto list = [&](const char* key) {
    const auto found = opened.metadata().find(key);
    if (found == opened.metadata().end()) return std::vector<std::string>();
    const auto json = nlohmann::json::parse(found->second, nullptr, false);
    const bool strings = json.is_array() && std::all_of(json.begin(), json.end(),
                                                        [](const auto& each) { return each.is_string(); });
    TORCH_CHECK(strings, "[load_zero_shot] '", file.string(), "': '", key,
                "' of its metadata is no list of texts");
    return json.get<std::vector<std::string>>();
  };
  head.class_names = list("tpgm.classes");
  head.templates = list("tpgm.templates");
  TORCH_CHECK(
      head.weight.dim() == 2 &&
          (head.class_names.empty() || head.weight.size(0) == static_cast<int64_t>(head.class_names.size())),
      "[load_zero_shot] '", file.string(), "': the head is ", head.weight.sizes(), " for ",
      head.class_names.size(), " classes");
  return head;
}

}  // namespace tpgm

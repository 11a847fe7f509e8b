// Makes zero-shot heads from sentences, and saves and loads them.
#include "tpgm/text/zero_shot.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/io/safetensors.h"

namespace tpgm {
namespace {

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

// One sentence of a class.
struct Sentence {
  std::string text;
  int64_t place, tokens;  // among all, class by class; tokens with the two around them, all of them
};

std::vector<Sentence> sentences_of(const Tokenizer& tokenizer, const std::vector<std::string>& class_names,
                                   const std::vector<std::string>& templates) {
  TORCH_CHECK(!class_names.empty() && !templates.empty(), "[make_zero_shot] there are ", class_names.size(),
              " classes and ", templates.size(), " templates; at least one of each is needed");
  std::vector<Sentence> sentences;
  for (const auto& name : class_names) {
    for (const auto& pattern : templates) {
      std::string sentence = filled(pattern, name);
      const auto tokens = static_cast<int64_t>(tokenizer.encode(sentence).size()) + 2;
      sentences.push_back({std::move(sentence), static_cast<int64_t>(sentences.size()), tokens});
    }
  }
  return sentences;
}

}  // namespace

std::vector<std::string> find_templates(const std::string& text, const Metadata& metadata) {
  if (text.empty()) {
    auto own = keys::kTemplates.of(metadata);
    for (const auto& each : own)
      TORCH_CHECK(each.find(kPlaceholder) != std::string::npos,
                  "[find_templates] the checkpoint's template '", each,
                  "' has no {} for the class; give others with `templates`");
    return own.empty() ? std::vector<std::string>{"a photo of a {}."} : own;
  }
  std::error_code error;
  const bool sentence = text.find(kPlaceholder) != std::string::npos && !std::filesystem::exists(text, error);
  return sentence ? std::vector{text} : load_templates(text);
}

Tokenizer find_tokenizer(const std::filesystem::path& path, const std::filesystem::path& checkpoint,
                         int64_t vocab) {
  if (!path.empty()) return Tokenizer(path);
  if (const auto beside = checkpoint.empty() ? checkpoint : find_vocabulary(checkpoint); !beside.empty())
    return Tokenizer(beside);
  TORCH_CHECK(vocab == Tokenizer::kBytes, "[find_tokenizer] there is no vocabulary",
              checkpoint.empty() ? "" : fmt::format(" beside '{}'", checkpoint.string()),
              " (tokenizer.json, vocab.json with merges.txt, bpe_simple_vocab_16e6.txt.gz); name one with "
              "`vocab`");
  return Tokenizer::bytes();
}

ClassTokens tokenize_classes(const ClipText& text, const Tokenizer& tokenizer,
                             const std::vector<std::string>& class_names,
                             const std::vector<std::string>& templates) {
  check_vocabulary(text, tokenizer);
  ClassTokens result;
  std::vector<std::string> texts;
  int64_t longest = 0;
  for (auto& sentence : sentences_of(tokenizer, class_names, templates)) {
    if (sentence.tokens > text.options().context()) ++result.truncated;
    longest = std::max(longest, sentence.tokens);
    texts.push_back(std::move(sentence.text));
  }
  result.tokens =
      tokenizer.encode_batch(texts, std::min(longest, text.options().context()))
          .view({static_cast<int64_t>(class_names.size()), static_cast<int64_t>(templates.size()), -1});
  return result;
}

ZeroShotHead make_zero_shot(ClipText& text, const at::Tensor& logit_scale, const Tokenizer& tokenizer,
                            const std::vector<std::string>& class_names,
                            const std::vector<std::string>& templates, const ZeroShotOptions& options,
                            const std::function<void(size_t)>& progress) {
  TORCH_CHECK(options.batch_size() > 0, "[make_zero_shot] batch_size is ", options.batch_size(),
              ", expected at least 1");
  check_vocabulary(text, tokenizer);
  const at::NoGradGuard no_grad;
  const int64_t context = text.options().context();
  ZeroShotHead head{{}, class_names, templates, {}};
  auto sentences = sentences_of(tokenizer, class_names, templates);
  for (auto& sentence : sentences) {
    if (sentence.tokens > context) ++head.truncated;
    sentence.tokens = std::min(sentence.tokens, context);
  }
  at::Tensor all =
      at::empty({static_cast<int64_t>(sentences.size()), text.options().embedding()}, logit_scale.options());
  // The text tower reads no token after the end of a text, so a batch is as long as its longest text. Sorted
  // by length, most batches are short.
  std::stable_sort(sentences.begin(), sentences.end(),
                   [](const Sentence& a, const Sentence& b) { return a.tokens < b.tokens; });
  const auto batch_size = static_cast<size_t>(options.batch_size());
  for (size_t begin = 0; begin < sentences.size(); begin += batch_size) {
    const size_t end = std::min(sentences.size(), begin + batch_size);
    std::vector<std::string> texts;
    std::vector<int64_t> places;
    for (size_t i = begin; i < end; ++i) {
      texts.push_back(sentences[i].text);
      places.push_back(sentences[i].place);
    }
    const at::Tensor tokens =
        tokenizer.encode_batch(texts, sentences[end - 1].tokens).to(logit_scale.device());
    const at::Tensor embedded = normalized(text.forward(tokens)).to(all.scalar_type());
    all.index_copy_(0, at::tensor(places).to(logit_scale.device()), embedded);
    if (progress) progress(end - begin);
  }
  // In one order, so that a head made again is the same to the last bit. The length of a sum is not that of a
  // mean, but both have one direction.
  const at::Tensor sums =
      all.view({static_cast<int64_t>(class_names.size()), static_cast<int64_t>(templates.size()), -1}).sum(1);
  head.weight = (normalized(sums) * logit_scale.exp()).cpu();
  TORCH_CHECK(head.weight.isfinite().all().item<bool>(),
              "[make_zero_shot] the head is not finite; does the checkpoint hold NaN or Inf? Give another");
  return head;
}

void save_zero_shot(const ZeroShotHead& head, const std::filesystem::path& file) {
  Metadata metadata;
  if (!head.model.empty()) keys::kModel.set(metadata, head.model);
  keys::kClasses.set(metadata, head.class_names);
  keys::kTemplates.set(metadata, head.templates);
  NamedTensors tensors("Tensor");
  tensors.insert("head.weight", head.weight);
  save_safetensors(tensors, file, metadata);
}

ZeroShotHead load_zero_shot(const std::filesystem::path& file) try {
  const SafetensorsFile opened(file);
  TORCH_CHECK(opened.entries().contains("head.weight") && opened.entries().size() == 1, "'", file.string(),
              "' is not a zero-shot head (one tensor, 'head.weight'); make one from class names");
  ZeroShotHead head;
  head.weight = opened.tensor("head.weight");
  try {
    head.class_names = keys::kClasses.of(opened.metadata());
    head.templates = keys::kTemplates.of(opened.metadata());
  } catch (c10::Error& error) {
    error.add_context(fmt::format("in '{}'", file.string()));
    throw;
  }
  head.model = keys::kModel.of(opened.metadata());
  TORCH_CHECK(
      head.weight.dim() == 2 &&
          (head.class_names.empty() || head.weight.size(0) == static_cast<int64_t>(head.class_names.size())),
      "'", file.string(), "': the head is ", head.weight.sizes(), " for ", head.class_names.size(),
      " classes");
  return head;
} catch (...) {
  rethrow_from("load_zero_shot");
}

}  // namespace tpgm

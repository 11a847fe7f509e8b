// CLIP's tokenizer: text to the ids that the text encoder was trained on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

struct Vocabulary;  // vocabulary.h

/// Byte-pair encoding as Hugging Face's CLIPTokenizer does it, id for id: normalization form C, white space,
/// lower case character by character, words, bytes, merges. open_clip's and OpenAI's own tokenizers give the
/// same ids for clean text; before that they repair what was decoded wrongly (ftfy) and replace HTML
/// entities, which is not done here.
///
/// "<|startoftext|>" and "<|endoftext|>" within a text are the special tokens, as are the added tokens of a
/// tokenizer.json.
///
/// Ids may differ from Hugging Face's where tables of Unicode do: a character newer than utf8proc's (2.8.0:
/// Unicode 15) is neither letter nor number here and has no lower case, while tokenizers 0.23 knows those of
/// Unicode 16; and tokenizers orders and composes marks by Unicode 9, which matters where a newer mark
/// follows or precedes another.
///
/// Cheap to copy; copies share the vocabulary. Thread-safe.
class Tokenizer {
 public:
  /// `path`: one of
  ///   - tokenizer.json; of it the vocabulary, the merges and the added tokens are used, the rest has to be CLIP's
  ///   - vocab.json, with merges.txt beside it, or that merges.txt
  ///   - bpe_simple_vocab_16e6.txt.gz, or the same unpacked
  ///   - a folder that has one of these; the first in this order is taken
  /// JSON, lists of merges and gzip are told apart by content.
  ///
  /// Throws c10::Error for anything else, a vocabulary of another model, more than 64 MiB (16 MiB if it
  /// was packed), ids that leave gaps, merges of unknown tokens; and in a build without utf8proc.
  explicit Tokenizer(const std::filesystem::path& path);
  /// Throws Malformed for what is wrong with it as a whole.
  explicit Tokenizer(const Vocabulary& vocabulary);
  /// CLIP's without any merges: a token for each byte within a word, for each at its end, and the two special
  /// ones. For models too small for a vocabulary of words.
  static Tokenizer bytes();
  static constexpr int64_t kBytes = 514;  ///< its vocab_size()

  int64_t vocab_size() const;
  int64_t start_of_text() const;
  int64_t end_of_text() const;  ///< pads as well, and stands for what is not in the vocabulary

  /// Ids without the two special tokens around them. What is not UTF-8 counts as U+FFFD.
  std::vector<int64_t> encode(std::string_view text) const;

  /// [texts, context], int64: start of text, the ids, end of text, and end of text up to `context`. Ids that
  /// do not fit are left out at the end. In Hugging Face's words: padding="max_length", truncation=True.
  ///
  /// open_clip pads with 0, and a few Hugging Face models with "!"; the text encoder sees nothing after the
  /// first end of text.
  at::Tensor encode_batch(const std::vector<std::string>& texts, int64_t context = 77) const;

 private:
  struct Model;
  std::shared_ptr<const Model> model_;
};

/// The file to give to Tokenizer from beside a checkpoint (in the folder of a file, or in the folder itself);
/// empty if there is none. Only names are looked at.
std::filesystem::path find_vocabulary(const std::filesystem::path& checkpoint);

}  // namespace tpgm

// Reads vocab.json and tokenizer.json.
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tpgm/base/error_text.h"
#include "tpgm/base/numbers.h"
#include "tpgm/text/vocabulary.h"

namespace tpgm {
namespace {

using json = nlohmann::json;

// Adds tokens and merges to the vocabulary as they are parsed. The other fields are few and small, and are
// kept as "path.of.keys" → value.
class JsonReader final : public nlohmann::json_sax<json> {
 public:
  explicit JsonReader(Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  bool start_object(size_t) override { return open(false); }
  bool end_object() override { return levels_.pop_back(), true; }
  bool start_array(size_t) override { return open(true); }
  bool end_array() override {
    if (levels_.back().place == Place::merge) {
      require(pair_.size() == 2, "merge {} has {} parts", vocabulary_.merges.size() + 1, pair_.size());
      vocabulary_.add_merge(pair_[0], pair_[1]);
    }
    return levels_.pop_back(), true;
  }
  bool key(std::string& key) override { return key_ = key, true; }
  bool number_unsigned(uint64_t number) override {
    const Place place = levels_.back().place;
    if (place != Place::root && place != Place::tokens) return scalar(std::to_string(number));
    vocab_json |= place == Place::root;
    vocabulary_.add(key_, number);
    return true;
  }
  bool string(std::string& text) override {
    const Place place = levels_.back().place;
    if (place == Place::merge) {
      require(pair_.size() < 2, "merge {} has more than 2 parts", vocabulary_.merges.size() + 1);
      pair_.push_back(text);
    } else if (place == Place::merges) {
      const size_t space = text.find(' ');
      require(space != std::string::npos, "merge {} is '{}', not two tokens", vocabulary_.merges.size() + 1,
              printable(text));
      vocabulary_.add_merge(std::string_view(text).substr(0, space),
                            std::string_view(text).substr(space + 1));
    } else {
      return scalar(text);
    }
    return true;
  }
  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(int64_t number) override { return scalar(std::to_string(number)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool binary(json::binary_t&) override { return scalar("binary"); }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    throw Malformed{fmt::format("byte {}: not JSON: {}", position, json_reason(error))};
  }

  bool vocab_json = false;      // tokens at the root
  bool tokenizer_json = false;  // tokens in "model"
  std::map<std::string, std::string> fields;

 private:
  enum class Place : uint8_t { root, tokens, merges, merge, other, ignored };
  struct Level {
    Place place;
    std::string path;
    bool array;
    size_t next = 0;
  };

  // The path of what comes next in the current level.
  std::string path() {
    if (levels_.empty()) return "";
    Level& level = levels_.back();
    const std::string name = level.array ? std::to_string(level.next++) : key_;
    vocabulary_.budget.charge(level.path.size() + name.size() + 1);
    return level.path.empty() ? name : level.path + "." + name;
  }
  bool open(bool array) {
    constexpr size_t kMaxDepth = 20;
    require(levels_.size() < kMaxDepth, "it nests more than {} levels", kMaxDepth);
    if (!levels_.empty() && levels_.back().place == Place::merges) {
      require(array, "merge {} is an object", vocabulary_.merges.size() + 1);
      pair_.clear();
      levels_.push_back({Place::merge, "", true});
      return true;
    }
    const Place outer = levels_.empty() ? Place::other : levels_.back().place;
    require(outer != Place::tokens && outer != Place::merge, "expected a {}, found an {}",
            outer == Place::merge ? "token" : "number", array ? "array" : "object");
    if (outer == Place::ignored) {
      levels_.push_back({Place::ignored, "", array});
      return true;
    }
    std::string here = path();
    tokenizer_json |= here == "model";
    const bool described = here == "model" || here.starts_with("added_tokens") ||
                           here.starts_with("normalizer") || here.starts_with("pre_tokenizer");
    const Place place = levels_.empty()                   ? Place::root
                        : !array && here == "model.vocab" ? Place::tokens
                        : array && here == "model.merges" ? Place::merges
                        : described                       ? Place::other
                                                          : Place::ignored;
    levels_.push_back({place, std::move(here), array});
    return true;
  }
  bool scalar(const std::string& value) {
    const Place place = levels_.back().place;
    require(place != Place::tokens, "the id of the token '{}' is {}", printable(key_), printable(value));
    require(place != Place::merges && place != Place::merge, "merge {} contains {}",
            vocabulary_.merges.size() + 1, printable(value));
    if (place == Place::ignored) return true;
    const std::string here = path();
    vocabulary_.budget.charge(value.size() + 200);
    require(fields.emplace(here, value).second, "it has '{}' twice", printable(here));
    return true;
  }

  Vocabulary& vocabulary_;
  std::vector<Level> levels_;
  std::string key_;
  std::vector<std::string> pair_;
};

using Fields = std::map<std::string, std::string>;

// The fields whose path begins with `prefix`.
Fields part(const Fields& fields, const std::string& prefix) {
  Fields result;
  for (auto item = fields.lower_bound(prefix); item != fields.end() && item->first.starts_with(prefix);
       ++item) {
    result.insert(*item);
  }
  return result;
}

// Throws unless a tokenizer.json treats text as CLIP's does.
void check_fields(const Fields& fields) {
  const auto value = [&](const std::string& path, const std::string& otherwise) {
    const auto found = fields.find(path);
    return found == fields.end() ? otherwise : found->second;
  };
  const auto check = [](bool condition, const std::string& reason) {
    if (!condition) throw Malformed{reason, kAnotherModel};
  };
  const std::string type = value("model.type", "of no type");
  check(type == "BPE", fmt::format("expected a model of type BPE, as CLIP's is, found {}", printable(type)));
  const std::string suffix = value("model.end_of_word_suffix", "null");
  check(suffix == kWordEnd,
        fmt::format("expected the end_of_word_suffix '</w>' of CLIP, found '{}'", printable(suffix)));
  for (const auto& [option, usual] : {std::pair<const char*, const char*>{"continuing_subword_prefix", ""},
                                      {"dropout", "null"},
                                      {"fuse_unk", "false"},
                                      {"byte_fallback", "false"},
                                      {"ignore_merges", "false"}}) {
    const std::string found = value(fmt::format("model.{}", option), usual);
    check(found == usual || found == "null",
          fmt::format("its model has {} '{}', and CLIP's has none", option, printable(found)));
  }

  check(part(fields, "normalizer") == Fields{{"normalizer.type", "Sequence"},
                                             {"normalizer.normalizers.0.type", "NFC"},
                                             {"normalizer.normalizers.1.type", "Replace"},
                                             {"normalizer.normalizers.1.pattern.Regex", "\\s+"},
                                             {"normalizer.normalizers.1.content", " "},
                                             {"normalizer.normalizers.2.type", "Lowercase"}},
        "its normalizer is not CLIP's (NFC, white space, lower case)");

  Fields words = part(fields, "pre_tokenizer");
  const std::string split = "pre_tokenizer.pretokenizers.0.", bytes = "pre_tokenizer.pretokenizers.1.";
  words.erase(bytes + "trim_offsets");
  words.emplace(bytes + "use_regex", "true");
  const std::string regex = std::exchange(words[split + "pattern.Regex"], "");
  const std::string usual = R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";
  const std::string special = R"(<\|startoftext\|>|<\|endoftext\|>|)";
  check((regex == usual || regex == special + usual) && words == Fields{{"pre_tokenizer.type", "Sequence"},
                                                                        {split + "type", "Split"},
                                                                        {split + "pattern.Regex", ""},
                                                                        {split + "behavior", "Removed"},
                                                                        {split + "invert", "true"},
                                                                        {bytes + "type", "ByteLevel"},
                                                                        {bytes + "add_prefix_space", "false"},
                                                                        {bytes + "use_regex", "true"}},
        "its pre_tokenizer is not CLIP's (words by a regular expression, then bytes)");
}

void read_added_tokens(const Fields& fields, Vocabulary& vocabulary) {
  constexpr size_t kMaxContent = 256;
  const size_t all = part(fields, "added_tokens").size();
  for (size_t i = 0, read = 0; read < all; ++i) {
    Fields token = part(fields, fmt::format("added_tokens.{}.", i));
    read += token.size();
    const auto field = [&](const char* name) { return token[fmt::format("added_tokens.{}.{}", i, name)]; };
    const std::string content = field("content"), id = field("id");
    require(!content.empty() && content.size() <= kMaxContent, "added token {} has {} bytes", i,
            content.size());
    for (const char* option : {"single_word", "lstrip", "rstrip"}) {
      if (field(option) != "true") continue;
      throw Malformed{
          fmt::format("the added token '{}' is {}, which is not supported", printable(content), option),
          "give the tokenizer of the CLIP model itself, without that token"};
    }
    const auto number = parse_number<uint64_t>(id);
    require(number.has_value(), "the added token '{}' has the id '{}'", printable(content), printable(id));
    const auto known = vocabulary.ids.find(content);
    if (known == vocabulary.ids.end()) {
      vocabulary.add(content, *number);
    } else {
      require(static_cast<uint64_t>(known->second) == *number,
              "the added token '{}' has the id {}, and {} in the vocabulary", printable(content), *number,
              known->second);
    }
    vocabulary.added.push_back({content, field("normalized") == "true"});
  }
}

}  // namespace

void parse_vocabulary_json(std::string_view text, Vocabulary& vocabulary) {
  check_json_text(text, 0);
  JsonReader reader(vocabulary);
  json::sax_parse(text, &reader);
  require(!reader.vocab_json || !reader.tokenizer_json, "it has numbers beside 'model'");
  vocabulary.merges_apart = reader.vocab_json;
  if (reader.tokenizer_json) {
    check_fields(reader.fields);
    read_added_tokens(reader.fields, vocabulary);
  } else if (!reader.vocab_json) {
    throw Malformed{"expected the tokens and ids of CLIP, found other JSON", kAnotherModel};
  }
}

}  // namespace tpgm

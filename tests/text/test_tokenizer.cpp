// Ids against Hugging Face's on 10,000 texts, in every form that a vocabulary comes in, and files that must
// be refused. TPGM_TOKENIZER_GOLDENS names another folder of goldens (make_goldens.py
// --full).
#include "tpgm/text/tokenizer.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <zlib.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/io/scratch.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/text/unicode.h"

namespace tpgm {
namespace {

using namespace test;
namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

fs::path golden(const std::string& name) {
  const char* other = std::getenv("TPGM_TOKENIZER_GOLDENS");
  return (other != nullptr ? fs::path(other) : fs::path(TPGM_TEST_DATA) / "text/goldens") / name;
}
const std::string kList = "bpe_simple_vocab_16e6.txt";

std::string unpacked(const fs::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  std::string bytes(1 << 16, '\0'), all;
  for (int size = 0; (size = gzread(file, bytes.data(), 1 << 16)) > 0;) {
    all.append(bytes, 0, static_cast<size_t>(size));
  }
  gzclose(file);
  return all;
}

struct Line {
  std::string text;
  Ids ids;
};

std::vector<Line> lines_of(const fs::path& path) {
  const std::string bytes = unpacked(path);
  size_t at = 0;
  const auto number = [&](auto value) {
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  std::vector<Line> lines;
  while (at < bytes.size()) {
    Line line;
    const auto size = number(uint32_t{});
    line.text = bytes.substr(at, size);
    at += size;
    line.ids.resize(number(uint32_t{}));
    for (auto& id : line.ids) id = number(uint16_t{});
    lines.push_back(line);
  }
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// How many lines differ; the first few are told.
size_t differing(const Tokenizer& tokenizer, const std::vector<Line>& lines) {
  size_t count = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Ids ids = tokenizer.encode(lines[i].text);
    if (ids == lines[i].ids) continue;
    if (++count > 5) continue;
    ADD_FAILURE() << "line " << i << " '" << lines[i].text << "': " << ::testing::PrintToString(ids)
                  << ", expected " << ::testing::PrintToString(lines[i].ids);
  }
  return count;
}

class TokenizerTest : public test::Scratch {
 protected:
  void SetUp() override {
    try {
      require_unicode();
    } catch (const c10::Error& error) {
      GTEST_SKIP() << error.what_without_backtrace();
    }
  }

  fs::path write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(file(name).parent_path());
    write_bytes(file(name), bytes);
    return file(name);
  }
};

// --- ids -------------------------------------------------------------------------------------------------

TEST_F(TokenizerTest, GoldenLinesInEveryForm) {
  const auto lines = lines_of(golden("lines.bin.gz"));
  ASSERT_EQ(lines.size(), 10000U);
  const auto tokenizer_json = write("hf/tokenizer.json", unpacked(golden("saved") / "tokenizer.json.gz"));
  const auto list = write("list/" + kList, unpacked(golden("list") / (kList + ".gz")));
  for (const auto& path : {golden("pair") / "vocab.json", golden("pair") / "merges.txt", golden("pair"),
                           tokenizer_json, tokenizer_json.parent_path(), golden("list") / (kList + ".gz"),
                           golden("list"), list, list.parent_path(), golden("saved") / "tokenizer.json.gz"}) {
    const Tokenizer tokenizer(path);
    EXPECT_EQ(differing(tokenizer, lines), 0U) << path << ", of " << lines.size();
    EXPECT_EQ(tokenizer.start_of_text(), tokenizer.vocab_size() - 2) << path;
    EXPECT_EQ(tokenizer.end_of_text(), tokenizer.vocab_size() - 1) << path;
  }
}

TEST_F(TokenizerTest, GoldenBatches) {
  const Tokenizer tokenizer(golden("pair"));
  const SafetensorsFile expected(golden("batches.safetensors"));
  auto lines = lines_of(golden("lines.bin.gz"));
  std::vector<std::string> texts;
  for (size_t i = 0; i < 64; ++i) texts.push_back(lines[i].text);
  for (const int64_t context : {77, 8, 3, 2}) {
    const at::Tensor ids = expected.tensor("context_" + std::to_string(context)).to(at::kLong);
    EXPECT_TRUE(same(tokenizer.encode_batch(texts, context), ids)) << context;
  }
  EXPECT_EQ(tokenizer.encode_batch(texts).size(1), 77);
  EXPECT_EQ(tokenizer.encode_batch({}).sizes(), at::IntArrayRef({0, 77}));
  EXPECT_TRUE(contains(error_of([&] { tokenizer.encode_batch(texts, 1); }), "context is 1; give at least 2"));

  // The words that a batch remembers change nothing.
  texts.clear();
  for (const auto& line : lines) texts.push_back(line.text);
  const at::Tensor all = tokenizer.encode_batch(texts, 16);
  for (size_t i = 0; i < lines.size(); ++i) {
    Ids ids = lines[i].ids;
    ids.resize(std::min<size_t>(ids.size(), 14));
    ids.insert(ids.begin(), tokenizer.start_of_text());
    ids.resize(16, tokenizer.end_of_text());
    ASSERT_TRUE(same(all[static_cast<int64_t>(i)], at::tensor(ids))) << i;
  }
}

TEST_F(TokenizerTest, GoldenAddedTokensAndUnknownBytes) {
  const auto lines = lines_of(golden("unusual") / "lines.bin.gz");
  ASSERT_EQ(lines.size(), 800U);
  const Tokenizer tokenizer(golden("unusual") / "tokenizer.json.gz");
  EXPECT_EQ(differing(tokenizer, lines), 0U);
  EXPECT_NE(tokenizer.start_of_text(), tokenizer.vocab_size() - 2);
}

// Small enough to see by eye what the ids must be.
TEST_F(TokenizerTest, SmallVocabulary) {
  const Tokenizer tokenizer(write(kList, "title\nl o\nlo w</w>\ne r</w>\nlo we\nw e\n"));
  const auto id = [](char letter, bool last = false) { return int64_t{letter} - 0x21 + (last ? 256 : 0); };
  EXPECT_EQ(tokenizer.vocab_size(), 512 + 5 + 2);
  EXPECT_EQ(tokenizer.encode("low"), (Ids{513}));
  EXPECT_EQ(tokenizer.encode("LOWER low"), (Ids{512, id('w'), 514, 513}));
  EXPECT_EQ(tokenizer.encode("lowe"), (Ids{512, id('w'), id('e', true)}));
  EXPECT_EQ(tokenizer.encode("lowex"), (Ids{515, id('x', true)}));
  EXPECT_EQ(tokenizer.encode("it's 42"),
            (Ids{id('i'), id('t', true), id('\''), id('s', true), id('4', true), id('2', true)}));
  EXPECT_EQ(tokenizer.encode("<|startoftext|>low<|endoftext|>"), (Ids{517, 513, 518}));
  EXPECT_EQ(tokenizer.encode(" \n "), Ids{});
  EXPECT_EQ(tokenizer.encode("\xff"), tokenizer.encode("\xef\xbf\xbd"));
}

// Without merges the ids are those that CLIP's own vocabulary has for bytes: 'a' is 64, 'a</w>' 320.
TEST_F(TokenizerTest, BytesAreClipsVocabularyWithoutMerges) {
  const Tokenizer bytes = Tokenizer::bytes();
  EXPECT_EQ(bytes.vocab_size(), Tokenizer::kBytes);
  EXPECT_EQ(bytes.start_of_text(), 512);
  EXPECT_EQ(bytes.end_of_text(), 513);
  EXPECT_EQ(bytes.encode("a"), (Ids{320}));
  EXPECT_EQ(bytes.encode("A ba"), (Ids{320, 65, 320}));
  EXPECT_EQ(bytes.encode("é"), (Ids{127, 358}));  // two bytes, C3 and A9
  EXPECT_TRUE(bytes.encode_batch({"ab"}, 5).equal(at::tensor(Ids{512, 64, 321, 513, 513}).view({1, 5})));
}

TEST_F(TokenizerTest, LongWordsAndMarksTakeNoQuadraticTime) {
  const Tokenizer tokenizer(golden("pair"));
  const auto started = std::chrono::steady_clock::now();
  const std::string word(1 << 20, 'a');
  std::string marks = "a", random;
  for (int i = 0; i < 1 << 18; ++i) marks += i % 2 == 0 ? "\u0345" : "\u0334";
  std::mt19937 source(0);
  for (int i = 0; i < 1 << 20; ++i) random += static_cast<char>('a' + source() % 26);
  EXPECT_GT(tokenizer.encode(word).size(), 1000U);
  EXPECT_GT(tokenizer.encode(marks).size(), 1000U);
  EXPECT_GT(tokenizer.encode(random).size(), 1000U);
  EXPECT_GT(tokenizer.encode(std::string(1 << 20, '<')).size(), 1000U);
  // Minutes if any of them were quadratic; a second under sanitizers.
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(60));
}

// --- files -----------------------------------------------------------------------------------------------

TEST_F(TokenizerTest, FindsTheVocabularyBesideACheckpoint) {
  const auto checkpoint = write("model/model.safetensors", "");
  const auto folder = checkpoint.parent_path();
  EXPECT_EQ(find_vocabulary(checkpoint), fs::path());
  EXPECT_EQ(find_vocabulary(folder), fs::path());
  EXPECT_EQ(find_vocabulary(file("absent") / "model.pt"), fs::path());
  write("model/vocab.json", "");
  EXPECT_EQ(find_vocabulary(checkpoint), fs::path());  // of little use without merges.txt
  for (const auto& [written, found] :
       std::vector<std::pair<std::string, std::string>>{{kList, kList},
                                                        {kList + ".gz", kList + ".gz"},
                                                        {"merges.txt", "vocab.json"},
                                                        {"tokenizer.json", "tokenizer.json"}}) {
    write("model/" + written, "");
    EXPECT_EQ(find_vocabulary(checkpoint), folder / found);
    EXPECT_EQ(find_vocabulary(folder), folder / found);
  }
  const auto before = fs::current_path();
  fs::current_path(folder);
  EXPECT_EQ(find_vocabulary("model.safetensors"), fs::path("tokenizer.json"));
  fs::current_path(before);
}

// What is wrong with `path`, without the path. Fails unless it is one line that begins as it should and says
// what to do.
std::string refusal(const fs::path& path, const fs::path& blamed) {
  std::string message = error_of([&] { Tokenizer{path}; });
  const std::string begin = "[Tokenizer] '" + blamed.string() + "': ";
  EXPECT_EQ(message.rfind(begin, 0), 0U) << message << "\nexpected: " << begin;
  EXPECT_TRUE(contains(message, "; ")) << message;
  EXPECT_FALSE(contains(message, "\n")) << message;
  EXPECT_LT(message.size(), 1000U);
  return message.substr(std::min(begin.size(), message.size()));
}

#define EXPECT_REFUSED(path, part) \
  EXPECT_TRUE(contains(refusal(path, path), part)) << refusal(path, path) << "\nexpected: " << (part)

const std::string kVocabulary =
    R"({"a":0,"b":1,"a</w>":2,"b</w>":3,"ab</w>":4,"<|startoftext|>":5,"<|endoftext|>":6})";

TEST_F(TokenizerTest, RefusesVocabulariesOfOtherModels) {
  const std::string another = "this is another model's: give the tokenizer.json";
  const auto bert = write("vocab.txt", "[PAD]\n[unused0]\n[unused1]\n[UNK]\n");
  EXPECT_REFUSED(bert,
                 "expected CLIP's merges, two tokens on a line, found '[unused0]' on line 2; " + another);
  const auto sentences = write("spiece.model", std::string("\n\x0e\n\x05<pad>\x15\0\0\0\0\x18\x03\n", 18));
  EXPECT_REFUSED(sentences, another);

  const auto gpt2 = write("gpt2/vocab.json", R"({"!":0,"\"":1,"Ġt":2,"<|endoftext|>":3})");
  write("gpt2/merges.txt", "#version: 0.2\nĠ t\n");
  EXPECT_REFUSED(gpt2, "expected CLIP's tokens, '<|startoftext|>' is not there; " + another);
  EXPECT_TRUE(contains(refusal(gpt2.parent_path(), gpt2), another));
  const auto neo = write("neo/vocab.json", R"({"t":0,"h":1,"th":2,"<|startoftext|>":3,"<|endoftext|>":4})");
  write("neo/merges.txt", "t h\n");
  EXPECT_REFUSED(neo, "with '</w>' where a word ends, found none; " + another);
  EXPECT_REFUSED(write("vocab.bpe", "#version: 0.2\nt h\nth e\n"), "found none; " + another);
  EXPECT_REFUSED(golden("batches.safetensors"), another);

  const auto t5 = write("t5/tokenizer.json",
                        R"({"version":"1.0","added_tokens":[],"normalizer":{"type":"Precompiled"},)"
                        R"("model":{"type":"Unigram","unk_id":2,"vocab":[["<pad>",0.0],["▁the",-2.5]]}})");
  EXPECT_REFUSED(t5, "expected a model of type BPE, as CLIP's is, found Unigram; " + another);
  EXPECT_REFUSED(write("config.json", R"({"architectures":["CLIPModel"],"text_config":{"x":1}})"), another);
  EXPECT_REFUSED(write("empty.json", "{}"), another);
}

TEST_F(TokenizerTest, RefusesTokenizerJsonThatTreatsTextInAnotherWay) {
  const std::string good = unpacked(golden("saved") / "tokenizer.json.gz");
  const auto path = write("tokenizer.json", good);
  EXPECT_GT(Tokenizer(path).vocab_size(), 512);
  struct Case {
    std::string from, to, message;
  };
  const std::vector<Case> cases{
      {R"("end_of_word_suffix": "</w>")", R"("end_of_word_suffix": null)",
       "end_of_word_suffix '</w>' of CLIP, found 'null'"},
      {R"("end_of_word_suffix": "</w>",)", "", "end_of_word_suffix"},
      {R"("type": "BPE")", R"("type": "WordPiece")", "type BPE, as CLIP's is, found WordPiece"},
      {R"("type": "BPE",)", "", "type BPE, as CLIP's is, found of no type"},
      {R"("continuing_subword_prefix": "")", R"("continuing_subword_prefix": "##")",
       "continuing_subword_prefix '##'"},
      {R"("dropout": null)", R"("dropout": 0.1)", "dropout '0.1'"},
      {R"("byte_fallback": false)", R"("byte_fallback": true)", "byte_fallback 'true'"},
      {R"("ignore_merges": false)", R"("ignore_merges": true)", "ignore_merges 'true'"},
      {R"("fuse_unk": false)", R"("fuse_unk": true)", "fuse_unk 'true'"},
      {R"("type": "NFC")", R"("type": "NFKC")", "its normalizer is not CLIP's"},
      {R"("type": "Lowercase")", R"("type": "StripAccents")", "its normalizer is not CLIP's"},
      {R"([\\p{N}]|)", R"([\\p{N}]+|)", "its pre_tokenizer is not CLIP's"},
      {R"("add_prefix_space": false)", R"("add_prefix_space": true)", "its pre_tokenizer is not CLIP's"},
      {R"("behavior": "Removed")", R"("behavior": "Isolated")", "its pre_tokenizer is not CLIP's"},
      {R"("single_word": false)", R"("single_word": true)",
       "'<|startoftext|>' is single_word, which is not supported"},
      {R"("rstrip": false)", R"("rstrip": true)", "is rstrip, which is not supported"},
      {R"("content": "<|endoftext|>")", R"("content": "")", "added token 1 has 0 bytes"},
      {R"("added_tokens": [)", R"("added_tokens": [{}, )", "added token 0 has 0 bytes"},
      {R"("added_tokens": [)", R"("added_tokens": [7, )", "added token 0 has 0 bytes"},
      {R"("content": "<|endoftext|>")", R"("content": "in")", "the added token 'in' has the id "},
      {R"("type": "BPE")", R"("type": "BPE", "type": "BPE")", "it has 'model.type' twice"},
      {R"("version")", R"("two words": 1, "version")", "it has numbers beside 'model'"},
      {R"("!": 0)", R"("!": -1)", "the id of the token '!' is -1"},
      {R"("!": 0)", R"("!": 1.5)", "the id of the token '!' is 1.5"},
      {R"("!": 0)", R"("!": "0")", "the id of the token '!' is 0"},
      {R"("!": 0)", R"("!": [0])", "expected a number, found an array"},
      {R"("!": 0)", R"("!": 1)", "has the id 1, and so has another"},
      {R"("!": 0)", R"("!": 60000)", "has the id 60000, and there are "},
      {R"("!": 0)", R"("!": 4294967296)", "has the id 4294967296"},
      {R"("ł</w>": 510)", R"("none</w></w>": 510)", ""},  // an unknown byte, no error
      {R"("merges": [)", R"("merges": [["a", "b", "c"], )", "merge 1 has more than 2 parts"},
      {R"("merges": [)", R"("merges": [["a"], )", "merge 1 has 1 parts"},
      {R"("merges": [)", R"("merges": [["a", ["b"]], )", "expected a token, found an array"},
      {R"("merges": [)", R"("merges": [["a", 1], )", "merge 1 contains 1"},
      {R"("merges": [)", R"("merges": [{"a": "b"}, )", "merge 1 is an object"},
      {R"("merges": [)", R"("merges": ["ab", )", "merge 1 is 'ab', not two tokens"},
      {R"("merges": [)", R"("merges": ["\u4e00 a", )", "merge 1 is '一 a', and '一' is not a token"},
      {R"("merges": [)", R"("merges": ["a \u4e00", )", "and '一' is not a token"},
      {R"("merges": [)", R"("merges": ["z \u00c1", )", "and 'zÁ' is not a token"},
      {R"("merges": [)", R"("merges": ["i n", )", "twice"},
      {R"("truncation")", R"("x": [[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]], "truncation")",
       "nests more than 20"},
      {R"("truncation")", R"("x": tru, "truncation")", "not JSON"},
  };
  for (const auto& [from, to, message] : cases) {
    std::string text = good;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_bytes(path, text.replace(at, from.size(), to));
    if (message.empty()) {
      EXPECT_NO_THROW(Tokenizer{path}) << to;
    } else {
      EXPECT_REFUSED(path, message);
    }
  }
}

TEST_F(TokenizerTest, RefusesWhatIsIncompleteOrDamaged) {
  const auto vocabulary = write("vocab.json", kVocabulary);
  EXPECT_REFUSED(vocabulary, "there is no merges.txt beside it; put the one of the same model there");
  const auto merges = write("alone/merges.txt", "a b</w>\n");
  EXPECT_REFUSED(merges, "there is no vocab.json beside it; put the one of the same model there");
  EXPECT_REFUSED(
      write("nothing/readme.md", "").parent_path(),
      "there is no tokenizer.json, no vocab.json with merges.txt and no bpe_simple_vocab_16e6.txt.gz in this "
      "folder; put those of the CLIP model there");
  EXPECT_TRUE(contains(error_of([&] { Tokenizer{file("absent.json")}; }), file("absent.json").string()));

  const auto beside = write("merges.txt", "#version: 0.2\r\na b</w>\r\n\r\n");
  EXPECT_EQ(Tokenizer(vocabulary).encode("ab AB b ac"), (Ids{4, 4, 3, 0, 6}));
  EXPECT_EQ(Tokenizer(beside).vocab_size(), 7);
  write("merges.txt", "a b</w> c\n");
  EXPECT_TRUE(contains(refusal(vocabulary, beside), "found 'a b</w> c' on line 1"));
  write("merges.txt", "");
  EXPECT_REFUSED(vocabulary, "found none");
  write("merges.txt", "a b</w>\na b</w>\n");
  EXPECT_REFUSED(vocabulary, "it has merge 1 twice");
  write("merges.txt", "a c</w>\n");
  EXPECT_REFUSED(vocabulary, "merge 1 is 'a c</w>', and 'c</w>' is not a token");
  write("vocab.json", R"({"a":0,"a":1})");
  EXPECT_REFUSED(vocabulary, "it has the token 'a' twice");
  write("vocab.json", kVocabulary.substr(0, 20));
  EXPECT_REFUSED(vocabulary, "not JSON");

  EXPECT_REFUSED(write("twice.txt", "title\na b\na b\n"), "it has the token 'ab' twice");
  EXPECT_REFUSED(write("unknown.txt", "title\na b</w>\nxy z\n"),
                 "merge 2 is 'xy z', and 'xy' is not a token");
  EXPECT_REFUSED(write("title.txt", "title\n"), "found none");
  EXPECT_REFUSED(write("empty.txt", ""), "found none");
}

TEST_F(TokenizerTest, RefusesEveryKindOfBrokenGzip) {
  const std::string good = read_bytes(golden("unusual") / "tokenizer.json.gz");
  const auto path = file("tokenizer.json.gz");
  for (size_t size = 2; size < good.size(); size += 97) {
    write_bytes(path, good.substr(0, size));
    EXPECT_REFUSED(path, "its gzip data is broken after ");
  }
  std::mt19937 random(0);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = good;
    bytes[10 + random() % (bytes.size() - 10)] ^= static_cast<char>(1 + random() % 255);
    write_bytes(path, bytes);
    EXPECT_THROW(Tokenizer{path}, c10::Error) << i;  // gzip's checksum, if nothing else
  }

  const gzFile bomb = gzopen(path.c_str(), "wb9");
  const std::string zeros(1 << 20, ' ');
  for (int i = 0; i < 65; ++i) gzwrite(bomb, zeros.data(), 1 << 20);
  gzclose(bomb);
  EXPECT_REFUSED(path, "it unpacks to more than 16 MiB");
  write_bytes(path, "{");
  fs::resize_file(path, (64 << 20) + 1);
  EXPECT_REFUSED(path, "it has 67108865 bytes, and a vocabulary at most 64 MiB");
}

TEST_F(TokenizerTest, DamageIsReadOrRefusedNeverWorse) {
  const std::string good = unpacked(golden("unusual") / "tokenizer.json.gz");
  std::mt19937 random(0);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    for (auto flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 128);
    }
    write_bytes(file("tokenizer.json"), bytes);
    try {
      Tokenizer(file("tokenizer.json")).encode("The quick brown fox, 日本 <|STARTOFTEXT|>");
    } catch (const c10::Error&) {  // what it should throw, and all it may throw
    }
  }
}

TEST_F(TokenizerTest, FilesMadeToTakeMemoryOrTimeAreRefused) {
  std::string tokens = "{\"model\":{\"vocab\":{\"\":0",
              arrays = "{\"normalizer\":{\"" + std::string(1 << 19, 'k') + "\":[0";
  for (int i = 0; i < 2000000; ++i) tokens += ",\"" + std::to_string(i) + "\":0";
  for (int i = 0; i < 500000; ++i) arrays += R"(,[""])";
  EXPECT_REFUSED(write("tokens.json", tokens + "}}}"), "its description takes more memory");
  EXPECT_REFUSED(write("arrays.json", arrays + "]}}"), "its description takes more memory");
}

}  // namespace
}  // namespace tpgm

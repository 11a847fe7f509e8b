// A file of CLIP's tokenizer: tokenizer.json, vocab.json (with merges that are in order) or a list of merges,
// packed or not; then text through what was read. After a NUL byte, which none of them has, comes the merges.txt of a
// vocab.json.
#include "tests/fuzz/support.h"
#include "tpgm/text/tokenizer.h"
#include "tpgm/text/vocabulary.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const size_t end = bytes.starts_with('{') ? bytes.find('\0') : std::string_view::npos;
    Vocabulary vocabulary = parse_vocabulary(bytes.substr(0, end));
    if (vocabulary.merges_apart) {
      parse_merges(end == std::string_view::npos ? "#version: 0.2\na b</w>\n" : bytes.substr(end + 1),
                   vocabulary);
    }
    const Tokenizer tokenizer(vocabulary);
    const auto is_id = [&](int64_t id) { return id >= 0 && id < tokenizer.vocab_size(); };
    fuzz::demand(is_id(tokenizer.start_of_text()) && is_id(tokenizer.end_of_text()),
                 "the special tokens have ids");
    const auto ids = tokenizer.encode("ab AB, b's 日本 12\xff <|startoftext|> <|ENDOFTEXT|>");
    fuzz::demand(!ids.empty() && std::all_of(ids.begin(), ids.end(), is_id), "text becomes ids");
  });
}

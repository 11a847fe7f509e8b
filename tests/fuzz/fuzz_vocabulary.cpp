// A file of CLIP's tokenizer: tokenizer.json, vocab.json (with merges that are in order) or a list of merges,
// packed or not; then text through what was read.
#include "tests/fuzz/support.h"
#include "tpgm/text/tokenizer.h"
#include "tpgm/text/vocabulary.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    Vocabulary vocabulary = parse_vocabulary(bytes);
    if (vocabulary.merges_apart) parse_merges("#version: 0.2\na b</w>\n", vocabulary);
    const Tokenizer tokenizer(vocabulary);
    const auto is_id = [&](int64_t id) { return id >= 0 && id < tokenizer.vocab_size(); };
    fuzz::demand(is_id(tokenizer.start_of_text()) && is_id(tokenizer.end_of_text()),
                 "the special tokens have ids");
    const auto ids = tokenizer.encode("ab AB, b's 日本 12\xff <|startoftext|> <|ENDOFTEXT|>");
    fuzz::demand(!ids.empty() && std::all_of(ids.begin(), ids.end(), is_id), "text becomes ids");
  });
}

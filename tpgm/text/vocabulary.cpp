// Reads lists of merges, unpacks gzip and tells the types of files apart; vocabulary_json.cpp reads JSON.
#include "tpgm/text/vocabulary.h"

#include <c10/util/Exception.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "tpgm/io/file.h"
#include "tpgm/text/unicode.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// CLIP's have 1 to 4 MB. What is unpacked is held besides what is made of it, so it may have less.
constexpr size_t kMaxFile = size_t{64} << 20, kMaxUnpacked = size_t{16} << 20;

std::string unpack(std::string_view packed) {
  z_stream stream{};
  TORCH_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());  // at most kMaxFile
  std::string text;
  std::vector<char> chunk(size_t{1} << 18);
  for (int result = Z_OK; result != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    result = inflate(&stream, Z_NO_FLUSH);
    require(result == Z_OK || result == Z_STREAM_END, "its gzip data is broken after {} bytes ({})",
            stream.total_out, stream.msg != nullptr ? stream.msg : "it ends early");
    text.append(chunk.data(), chunk.size() - stream.avail_out);
    require(text.size() <= kMaxUnpacked, "it unpacks to more than {} MiB", kMaxUnpacked >> 20);
  }
  return text;
}

// At most `limit` merges. The first line is a title in `titled` lists, whatever it says.
void read_merges(std::string_view text, bool titled, size_t limit, Vocabulary& vocabulary) {
  for (size_t number = 1; !text.empty() && vocabulary.merges.size() < limit; ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version") || (titled && number == 1)) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      throw Malformed{fmt::format("expected CLIP's merges, two tokens on a line, found '{}' on line {}",
                                  printable(line), number),
                      kAnotherModel};
    }
    vocabulary.add_merge(line.substr(0, space), line.substr(space + 1));
  }
}

// bpe_simple_vocab_16e6.txt has five times the merges that CLIP was trained with, and no ids: they follow
// from the order.
void read_merge_list(std::string_view text, Vocabulary& vocabulary) {
  read_merges(text, true, 49152 - 256 - 2, vocabulary);
  const auto letters = byte_letters();
  const auto next = [&] { return vocabulary.ids.size(); };
  for (const auto& item : letters) vocabulary.add(item.second, next());
  for (const auto& item : letters) vocabulary.add(item.second + std::string(kWordEnd), next());
  for (const auto& [left, right] : vocabulary.merges) vocabulary.add(left + right, next());
  vocabulary.add(kStartOfText, next());
  vocabulary.add(kEndOfText, next());
}

// The text of a file, which `storage` holds if it was packed.
std::string_view unpacked(std::string_view file, std::string& storage) {
  require(file.size() <= kMaxFile, "it has {} bytes, and a vocabulary at most {} MiB", file.size(),
          kMaxFile >> 20);
  if (!file.starts_with("\x1f\x8b")) return file;
  return storage = unpack(file);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Calls parse(bytes of the file), and names the file if it is malformed.
template <typename Parse>
void with_file(const fs::path& path, const Parse& parse) {
  const MappedFile file(path);
  try {
    parse(file.bytes());
  } catch (const Malformed& malformed) {
    refuse(path, malformed);
  }
}

// The other file of the pair, which has to be there.
fs::path beside(const fs::path& path, const char* name) {
  const fs::path other = path.parent_path() / name;
  TORCH_CHECK(is_there(other), "'", printable(path.string(), kMaxPath), "': there is no ", name,
              " beside it; put the one of the same model there");
  return other;
}

}  // namespace

Vocabulary parse_vocabulary(std::string_view file) {
  std::string storage;
  const std::string_view text = unpacked(file, storage);
  Vocabulary vocabulary;
  vocabulary.budget.add_file(file.size());
  text.starts_with('{') ? parse_vocabulary_json(text, vocabulary) : read_merge_list(text, vocabulary);
  return vocabulary;
}

void parse_merges(std::string_view file, Vocabulary& vocabulary) {
  std::string storage;
  const std::string_view text = unpacked(file, storage);
  vocabulary.budget.add_file(file.size());
  read_merges(text, false, std::numeric_limits<size_t>::max(), vocabulary);
}

Vocabulary read_vocabulary(const fs::path& path) {
  if (path.filename() == "merges.txt") return read_vocabulary(beside(path, "vocab.json"));
  Vocabulary vocabulary;
  with_file(path, [&](std::string_view file) { vocabulary = parse_vocabulary(file); });
  if (vocabulary.merges_apart) {
    with_file(beside(path, "merges.txt"), [&](std::string_view file) { parse_merges(file, vocabulary); });
  }
  return vocabulary;
}

fs::path vocabulary_in(const fs::path& folder) {
  if (is_there(folder / "tokenizer.json")) return folder / "tokenizer.json";
  if (is_there(folder / "vocab.json") && is_there(folder / "merges.txt")) return folder / "vocab.json";
  for (const char* suffix : {".gz", ""}) {
    const fs::path list = folder / (std::string(kMergeList) + suffix);
    if (is_there(list)) return list;
  }
  return {};
}

std::vector<std::pair<uint8_t, std::string>> byte_letters() {
  std::vector<std::pair<uint8_t, std::string>> seen, rest;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    std::string letter;
    append_utf8(visible ? byte : static_cast<char32_t>(0x100 + rest.size()), letter);
    (visible ? seen : rest).emplace_back(byte, letter);
  }
  seen.insert(seen.end(), rest.begin(), rest.end());
  return seen;
}

}  // namespace tpgm

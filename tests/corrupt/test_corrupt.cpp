// Attacks on the readers of checkpoints: each must be refused in one line, fast and without memory.
// all_attacks() is the list.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "builders.h"
#include "tests/io/scratch.h"
#include "tpgm/io/checkpoint.h"

namespace tpgm {
namespace {

using namespace test;
namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBig = 90'000'000;     // below the longest header that safetensors allows
constexpr size_t kPickle = 30'000'000;  // more opcodes than there is memory for their values

using Paths = std::vector<fs::path>;

struct Attack {
  std::string name, format, wrong;
  std::string expected;                         // in the message; empty: it opens, and every tensor is read
  std::function<Paths(const fs::path&)> build;  // writes to the folder, gives what to open, one by one
};

void PrintTo(const Attack& attack, std::ostream* stream) { *stream << attack.format << ": " << attack.wrong; }

// One file of these bytes.
template <typename Make>
auto file(const char* name, const Make& make) {
  return [=](const fs::path& folder) {
    write_bytes(folder / name, make());
    return Paths{folder / name};
  };
}
template <typename Make>
auto st(const Make& make) {
  return file("x.safetensors", make);
}
template <typename Make>
auto header(const Make& make) {
  return file("x.safetensors", [=] { return safetensors(make()); });
}
template <typename Make>
auto pt(const Make& make) {
  return file("x.pt", make);
}
// An archive around one pickle.
template <typename Make>
auto pickle(const Make& make) {
  return file("x.pt", [=] { return archive(pickled(make())); });
}
// A state dict with the entry "w".
template <typename Make>
auto weight(const Make& make) {
  return file("x.pt", [=] { return saved_tensor(make()); });
}
template <typename Make>
auto index(const Make& make) {
  return [=](const fs::path& folder) {
    write_bytes(folder / "a.safetensors", good_safetensors());
    write_bytes(folder / "x.index.json", make());
    return Paths{folder / "x.index.json"};
  };
}
std::string weight_map(const std::string& items) { return "{\"weight_map\":{" + items + "}}"; }

// The whole, cut at every `step`-th byte.
template <typename Make>
auto cut(const char* suffix, size_t step, const Make& make) {
  return [=](const fs::path& folder) {
    const std::string whole = make();
    Paths paths;
    for (size_t size = 0; size < whole.size(); size += step) {
      paths.push_back(folder / (std::to_string(size) + suffix));
      write_bytes(paths.back(), whole.substr(0, size));
    }
    return paths;
  };
}

// Distinct strings of 16 bytes to which std::hash gives one value: its 64-bit mixing can be undone.
std::string colliding(uint64_t i) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;
  uint64_t inverse = 1;
  for (int round = 0; round < 6; ++round) inverse *= 2 - kFactor * inverse;
  const auto shift = [](uint64_t value) { return value ^ (value >> 47); };
  const uint64_t first = (0xc70f6907 ^ (16 * kFactor) ^ (shift(i * kFactor) * kFactor)) * kFactor;
  const uint64_t mixed = first ^ 0x0123456789abcdef;
  return number(i) + number(shift(mixed * inverse) * inverse);
}

std::string system_call(const std::string& module, const std::string& name) {
  return reduce(global(module, name), {text("touch /tmp/owned")});
}

std::vector<Attack> safetensors_attacks() {
  const char* f = "safetensors";
  const auto of = [](const char* items, const char* data) {
    return [=] { return safetensors(std::string("{") + items + "}", data); };
  };
  return {
      {"header_length_huge", f, "a header of 2^64-1 bytes", "the header would be 18446744073709551615 bytes",
       st([] { return number(~uint64_t{0}) + "{}"; })},
      {"header_length_beyond_file", f, "a header longer than the file", "expected the header (1000 bytes)",
       st([] { return number<uint64_t>(1000) + "{}"; })},
      {"header_length_zero", f, "no header, but a '{' where it would be", "expected '{', where JSON begins",
       st([] { return number<uint64_t>(0) + "{}"; })},
      {"header_truncated", f, "cut at every byte", "it is",
       cut(".safetensors", 1, [] { return good_safetensors(); })},
      {"header_nul", f, "a NUL byte, to the JSON parser the end", "a NUL byte",
       header([] { return "{" + plain() + std::string("\0}", 2); })},
      {"header_nesting", f, "10 MB of '['", "is longer than",
       header([] { return "{\"w\":" + repeat("[", 10'000'000); })},
      {"header_number_100k_digits", f, "a size of 100,000 digits", "number overflow",
       header([] { return "{" + described("w", "F32", repeat("1", 100'000), "0,4") + "}"; })},
      {"header_number_giant", f, "a number of 90 MB, which the parser would hold twice", "is longer than",
       header([] { return "{\"w\":{\"x\":" + repeat("1", kBig) + "}}"; })},
      {"header_string_giant", f, "a string of 90 MB", "a string is longer than",
       header([] { return "{\"w\":\"" + repeat("x", kBig) + "\"}"; })},
      {"header_string_long_then_invalid", f, "the longest string allowed, broken at its end",
       "the header is not JSON", header([] { return "{\"" + repeat("x", 4 * kMiB - 1) + "\n\":1}"; })},
      {"header_names_long", f, "tensors with names of megabytes", "more memory than", header([] {
         return "{" +
                fill(30'000'000,
                     [](size_t i) {
                       return described(repeat("x", 3'000'000) + std::to_string(i), "U8", "0", "0,0") + ",";
                     }) +
                described("w", "U8", "0", "0,0") + "}";
       })},
      {"header_whitespace_giant", f, "90 MB of line breaks, which the parser keeps for its message",
       "is longer than", header([] { return "{" + repeat("\n", kBig) + "}"; })},
      {"header_whitespace_then_invalid", f, "1 MB of line breaks, each 8 characters in the parser's message",
       "the header is not JSON", header([] { return "{" + repeat("\n", kMiB - 10) + "x}"; })},
      {"header_tensors_millions", f, "90 MB of tensors without elements", "more memory than", header([] {
         return "{" +
                fill(kBig, [](size_t i) { return described(std::to_string(i), "U8", "0", "0,0") + ","; }) +
                described("w", "U8", "0", "0,0") + "}";
       })},
      {"header_tensors_as_many_as_allowed", f, "45,000 tensors without elements", "", header([] {
         std::string tensors;
         for (int i = 0; i < 45'000; ++i)
           tensors += described("module." + std::to_string(i), "U8", "0", "0,0") + ",";
         return "{" + tensors + described("module.w", "U8", "0", "0,0") + "}";
       })},
      {"header_metadata_millions", f, "90 MB of metadata keys", "more memory than", header([] {
         return "{\"__metadata__\":{" +
                fill(kBig, [](size_t i) { return "\"" + std::to_string(i) + "\":\"\","; }) + "\"x\":\"\"}}";
       })},
      {"header_fields_millions", f, "90 MB of unknown fields in a tensor", "'w' has no 'dtype'", header([] {
         return "{\"w\":{" + fill(kBig, [](size_t i) { return "\"" + std::to_string(i) + "\":0,"; }) +
                "\"x\":0}}";
       })},
      {"header_field_nested", f, "90 MB of '[' in an unknown field", "is longer than",
       header([] { return "{\"w\":{\"x\":" + repeat("[", kBig / 2) + repeat("]", kBig / 2) + "}}"; })},
      {"header_field_nested_with_numbers", f, "50 MB of '[0,' in an unknown field", "the header is not JSON",
       header([] { return "{\"w\":{\"x\":" + repeat("[0,", 50'000'000 / 3) + "}}"; })},
      {"header_not_closed", f, "the JSON ends early", "the header is not JSON",
       st([] { return safetensors("{" + plain(), "abcd"); })},
      {"header_two_values", f, "something after the JSON", "the header is not JSON",
       header([] { return "{}{}"; })},
      {"header_utf8_invalid", f, "a name that is not UTF-8", "the header is not JSON",
       st(of("\"\xff\xfe\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "abcd"))},
      {"header_utf8_overlong", f, "a '/' in two bytes", "the header is not JSON",
       st(of("\"\xc0\xaf\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "abcd"))},
      {"header_surrogate_alone", f, "half of a UTF-16 pair", "the header is not JSON",
       st(of("\"\\ud800\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "abcd"))},
      {"header_value_not_an_object", f, "a string in the place of a tensor", "an object that describes 'w'",
       st(of("\"w\":\"F32\"", ""))},
      {"header_metadata_not_strings", f, "a number in the metadata", "a string under 'x' of __metadata__",
       st(of("\"__metadata__\":{\"x\":1}", ""))},
      {"header_metadata_twice", f, "two __metadata__", "'__metadata__' twice",
       st(of("\"__metadata__\":{},\"__metadata__\":{}", ""))},
      {"header_metadata_key_twice", f, "a metadata key twice", "has the key 'x' twice",
       st(of("\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}", ""))},
      {"names_twice", f, "two tensors of one name", "the key 'w' twice",
       st([] { return safetensors("{" + plain() + "," + plain() + "}", "abcd"); })},
      {"names_twice_escaped", f, "two tensors of one name, spelled differently", "the key 'w' twice",
       st([] { return safetensors("{" + plain() + "," + plain("\\u0077") + "}", "abcd"); })},
      {"names_control_characters", f, "a name with line breaks and colors of a terminal",
       "'w??[31m?[2J' has no", st(of("\"w\\n\\u001b[31m\\u001b[2J\":{}", ""))},
      {"names_c1_controls", f, "a name with a terminal's 8-bit control sequence", "'w??31m' has no",
       st(of("\"w\\u009b31m\":{}", ""))},
      {"names_text_direction", f, "a name that turns the direction of the text around it", "'w???gpj.",
       st(of("\"w\\u202egpj.\\u2028\":{}", ""))},
      {"names_control_in_compiled", f, "names with line breaks that are equal without '_orig_mod.'",
       "with and without a prefix", st([] {
         return safetensors("{" + described("a\\n._orig_mod.b", "U8", "1", "0,1") + "," +
                                described("a\\n.b", "U8", "1", "1,2") + "}",
                            "ab");
       })},
      {"names_compiled_long", f, "a name of 4 MB of '._orig_mod'", "",
       st([] { return good_safetensors("w" + repeat("._orig_mod", 400'000) + ".x"); })},
      {"names_prefixed_long", f, "a name of 4 MB of 'module.'", "",
       st([] { return good_safetensors(repeat("module.", 550'000) + "x"); })},
      {"names_empty", f, "a tensor without a name", "", st([] { return good_safetensors(""); })},
      {"data_overlap", f, "two tensors in the same bytes", "overlaps that of another",
       st(of("\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
             "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}",
             "abcdef"))},
      {"data_hole", f, "bytes between two tensors", "a hole of 2 bytes",
       st(of("\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
             "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[6,10]}",
             "abcdefghij"))},
      {"data_left_over", f, "bytes after the last tensor", "bytes at the end belong to no tensor",
       st([] { return good_safetensors() + "zz"; })},
      {"data_beyond_file", f, "a tensor that ends after the file", "but the file has only 2 bytes of data",
       st([] { return safetensors("{" + plain() + "}", "ab"); })},
      {"data_backwards", f, "a tensor that ends before it begins", "begins at 4 and ends before",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}", "abcd"))},
      {"data_size_wrong", f, "fewer bytes than the shape takes", "has 4 bytes of data, but F32[2] takes 8",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}", "abcd"))},
      {"data_offsets_three", f, "three offsets", "expected two data_offsets",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}", "abcd"))},
      {"data_offsets_negative", f, "a negative offset", "found a negative number",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}", "abcd"))},
      {"data_offsets_2_64", f, "an offset of 2^64-1", "overflows 63 bits",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551615]}", "abcd"))},
      {"shape_overflows", f, "2^62 times 4 elements", "negative or overflows",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]}", "abcd"))},
      {"shape_overflows_to_fit", f, "a product that is 4 bytes modulo 2^64", "negative or overflows",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}", "abcd"))},
      {"shape_overflows_with_zero", f, "no elements, but strides beyond 64 bits", "negative or overflows",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[0,4611686018427387904,4],\"data_offsets\":[0,0]}", ""))},
      {"shape_rank_1000", f, "1000 dimensions", "more than 64 dimensions",
       header([] { return "{" + described("w", "F32", repeat("1,", 999) + "1", "0,4") + "}"; })},
      {"shape_message_long", f, "64 sizes of 19 digits, all in the message", "negative or overflows",
       header([] {
         return "{" + described("w", "F32", repeat("4611686018427387904,", 63) + "1", "0,4") + "}";
       })},
      {"shape_fraction", f, "a size of 1.5", "found a fraction",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}", "abcd"))},
      {"shape_nested", f, "a shape within a shape", "found an array",
       st(of("\"w\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}", "abcd"))},
      {"dtype_unknown", f, "a dtype with a line break", "the dtype 'F?' of 'w' is unknown",
       st(of("\"w\":{\"dtype\":\"F\\n\",\"shape\":[1],\"data_offsets\":[0,4]}", "abcd"))},
      {"dtype_twice", f, "a field twice", "'w' has the key 'dtype' twice",
       st(of("\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "abcd"))},
      {"bool_bytes", f, "a BOOL of 2", "bytes other than 0 and 1",
       st(of("\"w\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[0,4]}", "\1\1\2\1"))},
      {"bool_many_with_big_header", f, "90 MB of BOOL behind a header that takes as much again",
       "more memory than", st([] {
         std::string tensors;
         for (int i = 0; i < 130'000; ++i) tensors += described(std::to_string(i), "U8", "0", "0,0") + ",";
         return safetensors("{" + tensors + described("w", "BOOL", "90000000", "0,90000000") + "}",
                            std::string(90'000'000, '\1'));
       })},
  };
}

std::vector<Attack> index_attacks() {
  const char* f = "index.json";
  const char* outside = "which is not a file beside the index";
  const auto one = [](const char* shard) {
    return index([=] { return weight_map(std::string("\"w\":\"") + shard + "\""); });
  };
  return {
      {"index_parent_folder", f, "a shard in '../'", outside, one("../a.safetensors")},
      {"index_absolute", f, "a shard of an absolute path", outside, one("/etc/passwd")},
      {"index_backslash", f, "a shard in 'a\\\\b'", outside, one("..\\\\a.safetensors")},
      {"index_dots", f, "the shard '..'", outside, one("..")},
      {"index_shard_nul", f, "a NUL in a shard's name, the end of it to the system", outside,
       one("a.safetensors\\u0000x")},
      {"index_shard_line_break", f, "a shard named with a line break, which exists", outside,
       [](const fs::path& folder) {
         write_bytes(folder / "a\n.safetensors", "garbage");
         write_bytes(folder / "x.index.json", weight_map("\"w\":\"a\\n.safetensors\""));
         return Paths{folder / "x.index.json"};
       }},
      {"index_shard_name_long", f, "a shard's name longer than a system allows", outside,
       index([] { return weight_map("\"w\":\"" + repeat("x", 3'000'000) + "\""); })},
      {"index_shard_empty_name", f, "a shard without a name", outside, one("")},
      {"index_shard_missing", f, "a shard that is not there", "the shard 'b.safetensors' is missing",
       one("b.safetensors")},
      {"index_shard_is_index", f, "a shard that is an index itself", "it is not a checkpoint",
       [](const fs::path& folder) {
         write_bytes(folder / "y.index.json", weight_map("\"w\":\"a.safetensors\""));
         write_bytes(folder / "x.index.json", weight_map("\"w\":\"y.index.json\""));
         return Paths{folder / "x.index.json"};
       }},
      {"index_names_itself", f, "a shard that is the index", "it is not a checkpoint", one("x.index.json")},
      {"index_shard_fifo", f, "a shard that is a pipe without a writer", "is not a regular file",
       [](const fs::path& folder) {
         ::mkfifo((folder / "a.safetensors").c_str(), 0600);
         write_bytes(folder / "x.index.json", weight_map("\"w\":\"a.safetensors\""));
         return Paths{folder / "x.index.json"};
       }},
      {"index_shard_folder", f, "a shard that is a folder", "is not a regular file",
       [](const fs::path& folder) {
         fs::create_directory(folder / "a.safetensors");
         write_bytes(folder / "x.index.json", weight_map("\"w\":\"a.safetensors\""));
         return Paths{folder / "x.index.json"};
       }},
      {"index_shard_link_loop", f, "a shard that is a link to itself", "Too many levels of symbolic links",
       [](const fs::path& folder) {
         fs::create_symlink("a.safetensors", folder / "a.safetensors");
         write_bytes(folder / "x.index.json", weight_map("\"w\":\"a.safetensors\""));
         return Paths{folder / "x.index.json"};
       }},
      {"index_tensor_in_two_shards", f, "a tensor that two shards have", "tensor 'w' is there twice",
       [](const fs::path& folder) {
         write_bytes(folder / "a.safetensors", good_safetensors());
         write_bytes(folder / "b.safetensors", good_safetensors());
         write_bytes(folder / "x.index.json", weight_map("\"w\":\"a.safetensors\",\"v\":\"b.safetensors\""));
         return Paths{folder / "x.index.json"};
       }},
      {"index_tensor_twice", f, "a tensor twice in the index", "the tensor 'w' twice",
       index([] { return weight_map("\"w\":\"a.safetensors\",\"w\":\"a.safetensors\""); })},
      {"index_tensor_not_in_shard", f, "a tensor that its shard has not", "tensor 'v' should be in",
       index([] { return weight_map("\"w\":\"a.safetensors\",\"v\":\"a.safetensors\""); })},
      {"index_tensor_not_listed", f, "a shard with a tensor that the index has not",
       "the index does not say so", index([] { return weight_map("\"v\":\"a.safetensors\""); })},
      {"index_weight_map_numbers", f, "numbers for files",
       "expected the file of 'w' in 'weight_map', found a number",
       index([] { return weight_map("\"w\":1"); })},
      {"index_weight_map_objects", f, "objects for files", "found an object",
       index([] { return weight_map("\"w\":{}"); })},
      {"index_weight_map_array", f, "a weight_map that is an array", "expected 'weight_map'",
       index([] { return "{\"weight_map\":[\"a.safetensors\"]}"; })},
      {"index_weight_map_twice", f, "two weight_maps", "'weight_map' twice",
       index([] { return "{\"weight_map\":{\"w\":\"a.safetensors\"},\"weight_map\":{\"v\":\"b\"}}"; })},
      {"index_weight_map_missing", f, "no weight_map", "expected 'weight_map'", index([] { return "{}"; })},
      {"index_weight_map_nested", f, "a weight_map in the metadata alone", "expected 'weight_map'",
       index([] { return "{\"metadata\":{\"weight_map\":{\"w\":\"a.safetensors\"}}}"; })},
      {"index_empty", f, "an empty index", "expected '{'", index([] { return ""; })},
      {"index_nul", f, "a NUL byte", "a NUL byte",
       index([] { return weight_map("\"w\":\"a.safetensors\"") + std::string(1, '\0'); })},
      {"index_nesting", f, "10 MB of '[{' with keys", "not JSON",
       index([] { return "{\"x\":" + repeat("[{\"\":", 2'000'000); })},
      {"index_giant", f, "more than 100 MiB", "more than the 104857600 expected",
       index([] { return "{" + repeat(" ", 105'000'000) + "}"; })},
      {"index_tensors_millions", f, "90 MB of tensors", "more memory than", index([] {
         return weight_map(
             fill(kBig, [](size_t i) { return "\"" + std::to_string(i) + "\":\"a.safetensors\","; }) +
             "\"w\":\"a.safetensors\"");
       })},
      {"index_shards_amplify", f, "20 shards, each with as many tensors as one file may have",
       "more memory than",
       [](const fs::path& folder) {
         std::string items;
         for (size_t shard = 0; shard < 20; ++shard) {
           const std::string name = std::string(1, static_cast<char>('a' + shard));
           std::string tensors;
           for (size_t i = 0; i < 14'000; ++i) {
             const std::string tensor = name + std::to_string(i);
             tensors += described(tensor, "U8", "0", "0,0") + ",";
             items += "\"" + tensor + "\":\"" + name + "\",";
           }
           write_bytes(folder / name, safetensors("{" + tensors + described(name, "U8", "0", "0,0") + "}"));
           items += "\"" + name + "\":\"" + name + "\",";
         }
         write_bytes(folder / "x.index.json", weight_map(items.substr(0, items.size() - 1)));
         return Paths{folder / "x.index.json"};
       }},
      {"index_truncated", f, "cut at every byte", "it is",
       cut(".index.json", 1, [] { return weight_map("\"w\":\"a.safetensors\""); })},
  };
}

std::vector<Attack> zip_attacks() {
  const char* f = "zip";
  const std::string good = pickled(dict({text("w"), one_float()}));
  const auto changed = [=](const auto& change) {
    return pt([=] {
      std::vector<Record> records{{"a/data.pkl", good}, {"a/data/0", "abcd"}};
      End end;
      change(records, end);
      return zip(records, end);
    });
  };
  using Records = std::vector<Record>&;
  return {
      {"zip_no_end", f, "no end record", "directory at its end is missing",
       pt([=] { return archive(good).substr(0, archive(good).size() - 22); })},
      {"zip_signature_alone", f, "4 bytes", "too few for a zip archive", pt([] { return "PK\x03\x04"; })},
      {"zip_truncated", f, "cut at every byte", "it is", cut(".pt", 1, [=] { return archive(good); })},
      {"zip_directory_beyond_file", f, "a directory that begins after the file",
       "does not lie before its end", changed([](Records, End& end) { end.offset = 0x7fffffff; })},
      {"zip_directory_size_huge", f, "a directory of 4 GB", "does not lie before its end",
       changed([](Records, End& end) { end.size = 0xfffffffe; })},
      {"zip_directory_misplaced", f, "a directory where none is", "expected a directory entry",
       changed([](Records, End& end) { end.offset = 4; })},
      {"zip_records_too_many", f, "a directory shorter than its number of records says",
       "expected a directory entry", changed([](Records, End& end) { end.records = 1000; })},
      {"zip_records_2_64", f, "2^64-1 records", "expected a directory entry", changed([](Records, End& end) {
         end.zip64 = true;
         end.records = ~uint64_t{0};
       })},
      {"zip_zip64_size_2_64", f, "a zip64 directory of 2^64-1 bytes", "does not lie before its end",
       changed([](Records, End& end) {
         end.zip64 = true;
         end.size = ~uint64_t{0};
       })},
      {"zip_zip64_offset_wraps", f, "a zip64 directory whose offset and size add up to the file's",
       "does not lie before its end", changed([](Records, End& end) {
         end.zip64 = true;
         end.size = uint64_t{1} << 63;
         end.offset = uint64_t{1} << 63;
       })},
      {"zip_zip64_end_beyond_file", f, "a zip64 locator that points after the file",
       "expected the zip64 end record", changed([](Records, End& end) {
         end.zip64 = true;
         end.end64 = uint64_t{1} << 62;
       })},
      {"zip_zip64_end_misplaced", f, "a zip64 locator that points to something else",
       "expected the zip64 end record", changed([](Records, End& end) {
         end.zip64 = true;
         end.end64 = 0;
       })},
      {"zip_zip64_missing", f, "sizes that need zip64, and none there", "expected a zip64 locator",
       changed([](Records, End& end) { end.records = 0xffff; })},
      {"zip_zip64_field_huge", f, "a record of 2^64-1 bytes", "does not lie before the directory",
       changed([](Records records, End&) {
         records[1].size = 0xffffffff;
         records[1].inflated = 0xffffffff;
         records[1].extra =
             number<uint16_t>(1) + number<uint16_t>(16) + number(~uint64_t{0}) + number(~uint64_t{0});
       })},
      {"zip_zip64_field_offset_wraps", f, "a record whose offset and size wrap around",
       "does not lie before the directory", changed([](Records records, End&) {
         records[1].header = 0xffffffff;
         records[1].extra = number<uint16_t>(1) + number<uint16_t>(8) + number(~uint64_t{0} - 30);
       })},
      {"zip_zip64_field_short", f, "a zip64 field without its numbers", "expected a zip64 size or offset",
       changed([](Records records, End&) {
         records[1].header = 0xffffffff;
         records[1].extra = number<uint16_t>(1) + number<uint16_t>(0);
       })},
      {"zip_extra_field_beyond", f, "an extra field longer than its place", "expected an extra field",
       changed(
           [](Records records, End&) { records[1].extra = number<uint16_t>(7) + number<uint16_t>(60000); })},
      {"zip_record_beyond_file", f, "a record that begins after the file",
       "does not lie before the directory",
       changed([](Records records, End&) { records[1].header = 0x7fffffff; })},
      {"zip_record_size_huge", f, "a record of 4 GB", "does not lie before the directory",
       changed([](Records records, End&) { records[1].size = records[1].inflated = 0xfffffffe; })},
      {"zip_records_overlap", f, "a record within another, as zip bombs have it",
       "two records of the zip archive overlap",
       changed([](Records records, End&) { records[1].header = 2; })},
      {"zip_records_same_place", f, "1000 names for the same bytes", "two records of the zip archive overlap",
       changed([](Records records, End&) {
         for (size_t i = 0; i < 1000; ++i) {
           records.push_back({"a/data/x" + std::to_string(i), ""});
           records.back().header = 0;
         }
       })},
      {"zip_records_millions", f, "33 MB of records of no bytes", "more memory than",
       changed([](Records records, End& end) {
         for (uint32_t i = 0; i < 400'000; ++i) records.push_back({number(i), ""});
         end.zip64 = true;
       })},
      {"zip_names_collide", f, "100,000 names to which the standard library gives one hash",
       "made to slow down", pt([] {
         std::vector<Record> records;
         for (uint64_t i = 0; i < 100'000; ++i) records.push_back({colliding(i), ""});
         End end;
         end.zip64 = true;
         return zip(records, end);
       })},
      {"zip_name_twice", f, "two records of one name", "record 'a/data/0' is there twice",
       changed([](Records records, End&) { records.push_back({"a/data/0", "efgh"}); })},
      {"zip_local_name_differs", f, "a record that calls itself otherwise", "the directory calls this record",
       changed([](Records records, End&) { records[1].local_name = "a/data/1"; })},
      {"zip_local_header_missing", f, "no header where a record should begin",
       "expected a record of the zip archive", changed([](Records records, End&) {
         records[1].header = static_cast<uint32_t>(30 + 10 + records[0].data.size() + 1);
         records[1].data += "    ";
         records[1].size = 2;
         records[1].inflated = 2;
       })},
      {"zip_encrypted", f, "an encrypted record", "is encrypted",
       changed([](Records records, End&) { records[1].flags = 1; })},
      {"zip_method_unknown", f, "a record compressed by method 99", "is compressed by method 99",
       changed([](Records records, End&) { records[1].method = 99; })},
      {"zip_pickle_compressed", f, "a compressed data.pkl", "is compressed, which PyTorch never does",
       changed([](Records records, End&) {
         records[0].inflated = records[0].data.size();
         records[0].data = deflated(records[0].data);
         records[0].method = 8;
       })},
      {"zip_storage_compressed", f, "a compressed storage", "tensor 'w': record 'a/data/0' is compressed",
       changed([](Records records, End&) { records[1] = {"a/data/0", deflated("abcd"), 8, 0, 4}; })},
      {"zip_stored_size_differs", f, "a stored record with two sizes", "is stored in 4 bytes, but has 400",
       changed([](Records records, End&) { records[1].inflated = 400; })},
      {"zip_comment_huge", f, "the longest comment, made of end records", "directory at its end is missing",
       changed([](Records, End& end) {
         end.comment = repeat("PK\x05\x06", 16383);
         end.comment_size = 1;
       })},
      {"zip_comment_hides_directory", f, "a comment that is an end record itself", "",
       changed([](Records, End& end) { end.comment = repeat("PK\x05\x06", 16); })},
      {"zip_pickle_twice", f, "data.pkl at two roots", "with 2 records 'NAME/data.pkl'",
       changed([=](Records records, End&) { records.push_back({"b/data.pkl", good}); })},
      {"zip_pickle_missing", f, "no data.pkl", "with 0 records 'NAME/data.pkl'",
       pt([] { return zip({{"a/data/0", "abcd"}}); })},
      {"zip_name_control_characters", f, "a record's name with line breaks and colors",
       "record 'a/?[31m?' is encrypted",
       changed([](Records records, End&) { records.push_back({"a/\x1b[31m\n", "", 0, 1}); })},
      {"zip_byteorder_giant", f, "a byte order that inflates to 1 GB", "more than the 16 expected at most",
       changed([](Records records, End&) {
         records.push_back({"a/byteorder", deflated(repeat("\n", kMiB), 1024), 8, 0, 1024 * kMiB});
       })},
      {"zip_empty", f, "an archive of nothing", "it is not a checkpoint", pt([] { return zip({}); })},
  };
}

std::vector<Attack> pickle_attacks() {
  const char* f = "pickle";
  const char* refuses = "refuses to call";
  const char* memory = "more memory than";
  std::vector<Attack> attacks{
      {"call_os_system", f, "os.system", "refuses to call 'os.system'",
       pickle([] { return system_call("os", "system"); })},
      {"call_posix_system", f, "posix.system", "refuses to call 'posix.system'",
       pickle([] { return system_call("posix", "system"); })},
      {"call_eval", f, "builtins.eval", "refuses to call 'builtins.eval'",
       pickle([] { return system_call("builtins", "eval"); })},
      {"call_getattr", f, "builtins.getattr", "refuses to call 'builtins.getattr'",
       pickle([] { return system_call("builtins", "getattr"); })},
      {"call_torch_hub", f, "a function of PyTorch's that runs code", "refuses to call 'torch.hub.load'",
       pickle([] { return system_call("torch.hub", "load"); })},
      {"call_split_name", f, "a dot moved from the module to the name", "refuses to call 'os.path.os.system'",
       pickle([] { return system_call("os", "path.os.system"); })},
      {"call_known_name_moved", f, "a known name, split elsewhere", "expected a storage's type", weight([] {
         return tensor(tuple({text("storage"), global("torch.nn", "parameter.Parameter"), text("0"),
                              text("cpu"), integer(1)}) +
                           "Q",
                       0, {1}, {1});
       })},
      {"call_in_parameter", f, "os.system within a parameter", refuses, weight([] {
         return reduce(global("torch._utils", "_rebuild_parameter"), {system_call("os", "system"), "\x89"});
       })},
      {"call_from_type", f, "a harmless function in the place of one that rebuilds a tensor",
       "expected a function that rebuilds a tensor, not 'collections.OrderedDict'", weight([] {
         return reduce(global("torch._tensor", "_rebuild_from_type_v2"),
                       {global("collections", "OrderedDict"), global("torch", "Tensor"), ")", "N"});
       })},
      {"call_from_type_nested", f, "_rebuild_from_type_v2 of itself, without end",
       "expected a function that rebuilds a tensor", weight([] {
         return reduce(global("torch._tensor", "_rebuild_from_type_v2"),
                       {global("torch._tensor", "_rebuild_from_type_v2"), "N", ")", "N"});
       })},
      {"call_from_type_no_arguments", f, "_rebuild_from_type_v2 without arguments",
       "expected a function that rebuilds a tensor as argument 1",
       weight([] { return reduce(global("torch._tensor", "_rebuild_from_type_v2"), {}); })},
      {"call_parameter_no_arguments", f, "_rebuild_parameter without arguments", "expected an argument for",
       weight([] { return reduce(global("torch._utils", "_rebuild_parameter"), {}); })},
      {"call_inst", f, "os.system by the opcode INST", refuses,
       pickle([] { return "(" + text("id") + "ios\nsystem\n"; })},
      {"call_obj", f, "os.system by the opcode OBJ", refuses,
       pickle([] { return "(" + global("os", "system") + text("id") + "o"; })},
      {"call_obj_nothing", f, "OBJ without a class", "expected a class and its arguments",
       pickle([] { return "(o"; })},
      {"call_newobj", f, "os.system by the opcode NEWOBJ", refuses,
       pickle([] { return global("os", "system") + ")\x81"; })},
      {"call_newobj_ex", f, "os.system by the opcode NEWOBJ_EX", refuses,
       pickle([] { return global("os", "system") + ")}\x92"; })},
      {"call_stack_global", f, "os.system by STACK_GLOBAL, from strings", refuses,
       pickle([] { return text("os") + text("system") + "\x93)R"; })},
      {"call_stack_global_memo", f, "os.system by STACK_GLOBAL, its parts from the memo", refuses, pickle([] {
         return text("system") + put(7) + "0" + text("os") + get(7) + "\x93" + tuple({text("id")}) + "R";
       })},
      {"call_stack_global_bytes", f, "STACK_GLOBAL of bytes", "expected a name on the stack, not bytes",
       pickle([] { return "C\x02osC\x06system\x93"; })},
      {"call_ext1", f, "the opcode EXT1", "not 0x82", pickle([] { return "\x82\x01"; })},
      {"call_ext2", f, "the opcode EXT2", "not 0x83", pickle([] { return std::string("\x83\x01\x00", 3); })},
      {"call_ext4", f, "the opcode EXT4", "not 0x84",
       pickle([] { return std::string("\x84\x01\x00\x00\x00", 5); })},
      {"call_persid", f, "a persistent id of text", "expected the description of a storage",
       pickle([] { return "Pstorage\n"; })},
      {"call_buffers", f, "the opcodes for buffers outside of the pickle", "not 0x97",
       pickle([] { return "\x97\x98"; })},
      {"call_string", f, "a string that is called", "expected something to call on the stack",
       pickle([] { return text("os.system") + ")R"; })},
      {"call_list_arguments", f, "a list for a tuple of arguments", "expected a tuple of arguments",
       weight([] { return global("torch._utils", "_rebuild_parameter") + "](" + one_float() + "eR"; })},
      {"call_name_giant", f, "a module's name of 40 MB", "expected a name",
       pickle([] { return global(repeat("x", 40'000'000), "y"); })},
      {"call_name_control_characters", f, "a function's name with colors of a terminal",
       "refuses to call 'os.?[31msystem'", pickle([] { return global("os", "\x1b[31msystem"); })},
      {"call_name_not_utf8", f, "a function's name that is not UTF-8", "refuses to call 'os.??system'",
       pickle([] { return global("os", "\xff\x9bsystem"); })},
      {"call_build_nothing", f, "BUILD on nothing", "expected a value before this opcode",
       pickle([] { return "}b"; })},

      {"memo_index_huge", f, "a memo of 2^32-1, which takes no more than any other", "found no tensors",
       pickle([] { return "}" + put(0xffffffff); })},
      {"memo_index_2_64", f, "a memo of 2^64-1", "found no tensors",
       pickle([] { return "}p18446744073709551615\n"; })},
      {"memo_index_negative", f, "a memo of -1", "expected an integer, not '-1'",
       pickle([] { return "}p-1\n"; })},
      {"memo_missing", f, "a memo that was never stored", "expected memo 5 to have been stored",
       pickle([] { return get(5); })},
      {"memo_gap", f, "a memo between two that were stored", "expected memo 5 to have been stored",
       pickle([] { return "}" + put(0) + put(9) + get(5); })},
      {"memo_millions", f, "millions of MEMOIZE", memory,
       pickle([] { return "}" + repeat("\x94", 30'000'000); })},
      {"memo_same_million_times", f, "one memo, stored millions of times", memory,
       pickle([] { return "}" + repeat(std::string("q\0", 2), 2'000'000); })},
      {"memo_collide", f, "memos chosen to fall into one bucket of a hash table", "found no tensors",
       pickle([] {
         std::string body = "}";
         for (uint64_t i = 0; i < 400'000; ++i) body += "p" + std::to_string(i * 712697) + "\n";
         for (uint64_t i = 0; i < 300'000; ++i) body += "g" + std::to_string(i * 712697) + "\n0";
         return body;
       })},

      {"stack_lists_millions", f, "millions of EMPTY_LIST", memory,
       pickle([] { return repeat("]", kPickle); })},
      {"stack_dicts_millions", f, "millions of EMPTY_DICT", memory,
       pickle([] { return repeat("}", kPickle); })},
      {"stack_marks_millions", f, "millions of MARK", memory, pickle([] { return repeat("(", kPickle); })},
      {"stack_none_millions", f, "millions of NONE", memory, pickle([] { return repeat("N", kPickle); })},
      {"stack_tuples_millions", f, "millions of tuples, dropped at once", memory, pickle([] {
         return repeat(
             "N\x85"
             "0",
             kPickle / 3);
       })},
      {"stack_dup_millions", f, "millions of DUP", memory, pickle([] { return "}" + repeat("2", kPickle); })},
      {"stack_globals_millions", f, "millions of names", memory,
       pickle([] { return repeat("ctorch\nTensor\n0", 2'000'000); })},
      {"stack_objects_millions", f, "millions of objects", memory,
       pickle([] { return "ctorch\nSize\n" + put(0) + "0" + repeat(get(0) + ")R0", 3'000'000); })},
      {"stack_dict_items_millions", f, "a dictionary with millions of items", memory,
       pickle([] { return "}" + text("k") + put(0) + "0" + repeat(get(0) + "Ns", 5'000'000); })},
      {"stack_list_items_millions", f, "a list with millions of items", memory,
       pickle([] { return "](" + repeat("N", 600'000) + "e" + repeat("Na", 20'000'000); })},
      {"stack_stop_missing", f, "no STOP", "expected an opcode of a pickle",
       pt([] { return archive("\x80\x02}"); })},
      {"stack_empty_pickle", f, "a pickle of no bytes", "expected an opcode of a pickle",
       pt([] { return archive(""); })},
      {"stack_protocol_99", f, "protocol 99", "pickle protocols 0 to 5, not 99",
       pt([] { return archive(pickled("}", 99)); })},
      {"stack_pop_below_mark", f, "a value from before a mark", "expected 2 values before this opcode",
       pickle([] { return "}(s"; })},
      {"stack_odd_items", f, "a key without a value", "expected keys with values",
       pickle([] { return "}(" + text("k") + "u"; })},
      {"stack_append_to_dict", f, "APPEND to a dictionary", "expected a list to append to",
       pickle([] { return "}Na"; })},
      {"stack_setitem_of_list", f, "SETITEM of a list", "expected a dictionary to put items into",
       pickle([] { return "]NNs"; })},
      {"stack_every_opcode", f, "every opcode first, on an empty stack, after NONE and after MARK",
       "expected ",
       [](const fs::path& folder) {
         Paths paths;
         for (int opcode = 0; opcode < 256; ++opcode) {
           for (const char* before : {"", "N", "("}) {
             paths.push_back(folder / (std::to_string(paths.size()) + ".pt"));
             write_bytes(paths.back(),
                         archive(std::string(before) + static_cast<char>(opcode) + std::string(40, '\0')));
           }
         }
         return paths;
       }},

      {"length_binunicode8", f, "a string of 2^63 bytes", "expected a string (9223372036854775808 bytes)",
       pickle([] { return "\x8d" + number(uint64_t{1} << 63); })},
      {"length_binbytes8", f, "bytes of 2^64-1", "expected bytes (18446744073709551615 bytes)",
       pickle([] { return "\x8e" + number(~uint64_t{0}); })},
      {"length_bytearray8", f, "a bytearray of 2^64-1", "expected bytes (18446744073709551615 bytes)",
       pickle([] { return "\x96" + number(~uint64_t{0}); })},
      {"length_binunicode", f, "a string of 4 GB", "expected a string (4294967295 bytes)",
       pickle([] { return "X" + number(~uint32_t{0}); })},
      {"length_long4_negative", f, "an integer of -1 bytes", "expected a length, not -1",
       pickle([] { return "\x8b" + number<int32_t>(-1); })},
      {"length_long4_huge", f, "an integer of 2 GB", "expected an integer (2147483647 bytes)",
       pickle([] { return "\x8b" + number<int32_t>(0x7fffffff); })},
      {"length_binstring_negative", f, "a string of -1 bytes", "expected a length, not -1",
       pickle([] { return "T" + number<int32_t>(-1); })},
      {"length_frame_absurd", f, "frames of 2^64-1 bytes, which are not believed", "found no tensors",
       pickle([] { return repeat("\x95" + number(~uint64_t{0}), 1000) + "}"; })},
      {"length_line_endless", f, "a line without an end", "and a newline, the data ends",
       pickle([] { return "c" + repeat("x", 1'000'000); })},
      {"length_decimal_long", f, "an integer of a million digits", "expected an integer, not '111",
       pickle([] { return "I" + repeat("1", 1'000'000) + "\n"; })},
      {"length_float_long", f, "a number of a million digits", "found no tensors",
       pickle([] { return "F" + repeat("1", 1'000'000) + "\n0}"; })},
      {"length_quote_missing", f, "a string without its second quote", "expected a string in quotes",
       pickle([] { return "S'x\n"; })},

      {"nested_lists_million", f, "a million lists, one in the other", memory,
       pickle([] { return dict({text("k"), repeat("]", 1'000'000) + repeat("a", 999'999)}); })},
      {"nested_lists_deep", f, "200,000 lists, one in the other", "found no tensors",
       pickle([] { return dict({text("k"), repeat("]", 200'000) + repeat("a", 199'999)}); })},
      {"nested_tuples_million", f, "tuples in tuples, without end", memory,
       pickle([] { return dict({text("k"), ")" + repeat("\x85", 1'000'000)}); })},
      {"nested_dicts_deep", f, "100,000 dictionaries, one in the other", "found no tensors", pickle([] {
         return text("k") + put(0) + "0" + repeat("}" + get(0), 100'000) + "}" + repeat("s", 100'000);
       })},
      {"dict_key_twice", f, "a key twice, first a dictionary of tensors, then None", "",
       pickle([] { return dict({text("a"), dict({text("w"), one_float()}), text("a"), "N"}); })},
      {"laughs_lists", f, "lists of ten of the one before, 60 times", "found no tensors", pickle([] {
         std::string body = "]";
         for (int i = 0; i < 60; ++i) body += put(1) + "0](" + repeat(get(1), 10) + "e";
         return dict({text("k"), body});
       })},
      {"laughs_dicts", f, "dictionaries of ten of the one before, 60 times, with string keys",
       "nested beyond reason", pickle([] {
         std::string body = "}";
         for (int i = 0; i < 60; ++i) {
           body += put(1) + "0}(";
           for (int k = 0; k < 10; ++k) body += text(std::to_string(k)) + get(1);
           body += "u";
         }
         return body;
       })},
      {"laughs_dicts_wide_at_the_end", f, "8 dictionaries, then 100,000 times one of 100,000 items",
       "nested beyond reason", pickle([] {
         std::string body = text("k") + put(0) + "0}(" + repeat(get(0) + "N", 100'000) + "u" + put(1) +
                            "0}(" + repeat(get(0) + get(1), 100'000) + "u";
         for (int i = 0; i < 8; ++i) body += put(1) + "0}" + get(0) + get(1) + "s";
         return body;
       })},
      {"laughs_tensors", f, "5 levels of dictionaries, 30 wide, above a tensor", memory, pickle([] {
         std::string body = one_float();
         for (int i = 0; i < 6; ++i) {
           body += put(1) + "0}(";
           for (int k = 0; k < 30; ++k) body += text(std::to_string(k)) + get(1);
           body += "u";
         }
         return body;
       })},
      {"cycle_list", f, "a list that contains itself", "found no tensors",
       pickle([] { return dict({text("k"), "]" + put(0) + get(0) + "a"}); })},
      {"cycle_dict", f, "a dictionary that contains itself", "found no tensors",
       pickle([] { return "}" + put(0) + text("state_dict") + get(0) + "s"; })},
      {"cycle_dict_with_tensor", f, "a dictionary that contains itself and a tensor", "",
       pickle([] { return "}" + put(0) + text("x") + get(0) + "s" + text("w") + one_float() + "s"; })},
      {"cycle_dict_wide", f, "a dictionary that contains itself under 1000 keys, and a tensor", memory,
       pickle([] {
         std::string body = "}" + put(0) + "(" + text("w") + one_float();
         for (int i = 0; i < 1000; ++i) body += text(std::to_string(i)) + get(0);
         return body + "u";
       })},
      {"ordered_dict_repeated", f, "a list of 1000 pairs, made into a dictionary 100,000 times", memory,
       pickle([] {
         return global("collections", "OrderedDict") + put(0) + "0](" +
                repeat(tuple({text("k"), "N"}), 1000) + "e\x85" + put(1) + "0" +
                repeat(get(0) + get(1) + "R0", 100'000);
       })},
      {"ordered_dict_no_pairs", f, "an OrderedDict of things that are not pairs",
       "expected pairs of key and value",
       pickle([] { return reduce(global("collections", "OrderedDict"), {"](NNe"}); })},
      {"object_not_a_dict", f, "a list", "expected a dictionary of tensors, found a list",
       pickle([] { return "]"; })},
      {"keys_not_strings", f, "tensors under numbers", "found no tensors; its keys are '(no string)'",
       pickle([] { return dict({integer(1), one_float()}); })},
      {"keys_unhashable", f, "a list and a dictionary for keys", "found no tensors",
       pickle([] { return dict({"]", "N", "}", "N"}); })},
      {"keys_control_characters", f, "keys with line breaks and colors", "its keys are 'a?b', '?[31m'",
       pickle([] { return dict({text("a\nb"), "N", text("\x1b[31m"), "N"}); })},
      {"keys_giant", f, "a key of 40 MB above 1000 entries", memory, pickle([] {
         std::string body = text(repeat("k", 40'000'000)) + put(0) + "0" + one_float() + put(1) + "0}(";
         for (int i = 0; i < 1000; ++i) body += get(0) + get(1);
         return body + "u";
       })},
      {"keys_giant_nested", f, "the same key of 5 MB at every depth", memory, pickle([] {
         std::string body = text(repeat("k", 5'000'000)) + put(0) + "0" + dict({text("w"), one_float()});
         for (int i = 0; i < 7; ++i) {
           body += put(1) + "0}" + get(0) + get(1) + "s" + text("v") + one_float() + "s";
         }
         return body;
       })},
      {"names_collide", f, "100,000 tensors to whose names the standard library gives one hash",
       "made to slow down", pickle([] {
         std::string body = one_float() + put(0) + "0}(";
         for (uint64_t i = 0; i < 100'000; ++i) body += text(colliding(i)) + get(0);
         return body + "u";
       })},
      {"names_collide_without_prefix", f, "the same, once 'module.' is cut off", "made to slow down",
       pickle([] {
         std::string body = one_float() + put(0) + "0}(";
         for (uint64_t i = 0; i < 20'000; ++i) body += text("module." + colliding(i)) + get(0);
         return body + "u";
       })},
  };

  std::vector<Attack> tensors{
      {"tensor_name_twice", f, "two tensors of one name", "tensor 'w': the name is there twice",
       pickle([] { return dict({text("w"), one_float(), text("w"), one_float()}); })},
      {"tensor_name_twice_nested", f, "two tensors whose names are the same once joined",
       "tensor 'a.w': the name is there twice",
       pickle([] { return dict({text("a"), dict({text("w"), one_float()}), text("a.w"), one_float()}); })},
      {"tensor_name_control_characters", f, "a broken tensor's name with line breaks and colors",
       "tensor 'w??[31m': the archive has no record",
       pickle([] { return dict({text("w\n\x1b[31m"), tensor(storage("7", 1), 0, {1}, {1})}); })},
      {"tensor_sizes_overflow", f, "2^40 times 2^40 elements", "negative or overflows",
       weight([] { return tensor(storage("0", 1), 0, {int64_t{1} << 40, int64_t{1} << 40}, {0, 0}); })},
      {"tensor_sizes_overflow_with_zero", f, "no elements, but sizes beyond 64 bits", "negative or overflows",
       weight([] { return tensor(storage("0", 1), 0, {0, int64_t{1} << 40, int64_t{1} << 40}, {0, 0, 0}); })},
      {"tensor_size_negative", f, "a size of -1", "sizes, none negative, not -1",
       weight([] { return tensor(storage("0", 1), 0, {-1}, {1}); })},
      {"tensor_stride_negative", f, "a stride of -1", "strides, none negative, not -1",
       weight([] { return tensor(storage("0", 1), 0, {1}, {-1}); })},
      {"tensor_offset_negative", f, "an offset of -1", "expected a storage offset, not -1",
       weight([] { return tensor(storage("0", 1), -1, {1}, {1}); })},
      {"tensor_offset_huge", f, "an offset of 2^62", "leave its storage of 4 bytes",
       weight([] { return tensor(storage("0", 1), int64_t{1} << 62, {1}, {1}); })},
      {"tensor_leaves_storage", f, "two elements of a storage of one", "leave its storage of 4 bytes",
       weight([] { return tensor(storage("0", 1), 0, {2}, {1}); })},
      {"tensor_strides_leave_storage", f, "strides that leave the storage", "leave its storage of 4 bytes",
       weight([] { return tensor(storage("0", 1), 0, {2, 2}, {0, 1}); })},
      {"tensor_strides_overflow", f, "strides of 2^62", "leave its storage of 4 bytes",
       weight([] { return tensor(storage("0", 1), 0, {3, 3}, {int64_t{1} << 62, int64_t{1} << 62}); })},
      {"tensor_stride_0_terabyte", f, "one element, repeated to 1 TB", "repeats few elements until they take",
       weight([] { return tensor(storage("0", 1), 0, {int64_t{1} << 38}, {0}); })},
      {"tensor_stride_0_many", f, "20 tensors, each one element repeated to 32 MB", "", pickle([] {
         std::string body = storage("0", 1) + put(0) + "0}(";
         for (int i = 0; i < 20; ++i)
           body += text(std::to_string(i)) + tensor(get(0), 0, {int64_t{8} << 20}, {0});
         return body + "u";
       })},
      {"tensor_sizes_list", f, "sizes in a list, whose numbers are passed over", "expected a tuple of sizes",
       weight([] {
         return reduce(global("torch._utils", "_rebuild_tensor_v2"),
                       {storage("0", 1), integer(0), "](" + integer(7) + "e", "](" + integer(1) + "e"});
       })},
      {"tensor_size_float", f, "a size of 1.0", "expected sizes as argument 1, not a number", weight([] {
         return reduce(global("torch._utils", "_rebuild_tensor_v2"),
                       {storage("0", 1), integer(0), tuple({"F1\n"}), integers({1})});
       })},
      {"tensor_size_big_integer", f, "a size of 2^71", "expected sizes as argument 1, not an integer",
       weight([] {
         return reduce(global("torch._utils", "_rebuild_tensor_v2"),
                       {storage("0", 1), integer(0), tuple({"\x8a\x09" + std::string(8, '\0') + "\x7f"}),
                        integers({1})});
       })},
      {"tensor_rank_65", f, "65 dimensions", "a tensor's sizes, at most 64, not 65", weight([] {
         return tensor(storage("0", 1), 0, std::vector<int64_t>(65, 1), std::vector<int64_t>(65, 1));
       })},
      {"tensor_rank_64", f, "64 dimensions, the most there may be", "", weight([] {
         return tensor(storage("0", 1), 0, std::vector<int64_t>(64, 1), std::vector<int64_t>(64, 1));
       })},
      {"tensor_strides_missing", f, "fewer strides than sizes", "expected as many strides as sizes",
       weight([] { return tensor(storage("0", 1), 0, {1, 1}, {1}); })},
      {"tensor_message_long", f, "64 sizes and strides of 19 digits, all in the message", "leave its storage",
       weight([] {
         return tensor(storage("0", 1), 5, std::vector<int64_t>(64, 1),
                       std::vector<int64_t>(64, int64_t{1} << 62));
       })},
      {"tensor_of_no_storage", f, "a tensor for a storage", "expected a storage as argument 1",
       weight([] { return tensor(one_float(), 0, {1}, {1}); })},
      {"tensor_bool_bytes", f, "a bool of 'a'", "a bool tensor has a byte other than 0 and 1",
       weight([] { return tensor(storage("0", 4, "BoolStorage"), 0, {4}, {1}); })},
      {"tensor_bool_view", f, "a bool of 'a' that is repeated", "a bool tensor has a byte other than 0 and 1",
       weight([] { return tensor(storage("0", 4, "BoolStorage"), 3, {1000}, {0}); })},
      {"tensor_unaligned", f, "a storage that is not aligned", "", pt([] {
         return archive(pickled(dict({text("w"), tensor(storage("1", 2, "DoubleStorage"), 0, {2}, {1})})),
                        {{"a/x", "y"}, {"a/data/1", "0123456789abcdef"}});
       })},
      {"storage_numel_absurd", f, "a storage of 2^62 elements",
       "where 4611686018427387904 elements are expected",
       weight([] { return tensor(storage("0", int64_t{1} << 62), 0, {1}, {1}); })},
      {"storage_numel_negative", f, "a storage of -1 elements", "expected a storage's size, not -1",
       weight([] { return tensor(storage("0", -1), 0, {1}, {1}); })},
      {"storage_key_parent_folder", f, "a storage in '../'", "no record 'a/data/../../etc/passwd'",
       weight([] { return tensor(storage("../../etc/passwd", 1), 0, {1}, {1}); })},
      {"storage_key_pickle", f, "the pickle as a storage", "no record 'a/data/../data.pkl'",
       weight([] { return tensor(storage("../data.pkl", 1), 0, {1}, {1}); })},
      {"storage_key_missing", f, "a storage without a record",
       "tensor 'w': the archive has no record 'a/data/7'",
       weight([] { return tensor(storage("7", 1), 0, {1}, {1}); })},
      {"storage_key_giant", f, "a storage's key of 30 MB, used 1000 times", "expected a storage's key",
       weight([] {
         return text(repeat("k", 30'000'000)) + put(0) + "0" +
                repeat(tuple({text("storage"), global("torch", "FloatStorage"), get(0), text("cpu"),
                              integer(1)}) +
                           "Q0",
                       1000) +
                one_float();
       })},
      {"storage_type_unknown", f, "a class that is not a storage",
       "expected a storage's type, not 'torch.Size'", weight([] {
         return tensor(
             tuple({text("storage"), global("torch", "Size"), text("0"), text("cpu"), integer(1)}) + "Q", 0,
             {1}, {1});
       })},
      {"storage_tuple_short", f, "a storage's description without its size",
       "expected a storage's size as argument 5", weight([] {
         return tensor(
             tuple({text("storage"), global("torch", "FloatStorage"), text("0"), text("cpu")}) + "Q", 0, {1},
             {1});
       })},
      {"storage_view_huge", f, "a view that begins at element 2^62 of its storage", "leave its storage",
       weight([] {
         return tensor(tuple({text("storage"), global("torch", "FloatStorage"), text("0"), text("cpu"),
                              integer(1), tuple({text("v"), integer(int64_t{1} << 62), integer(1)})}) +
                           "Q",
                       0, {1}, {1});
       })},
      {"tensors_millions", f, "as many tensors as 30 MB can describe", memory, pickle([] {
         std::string body = storage("0", 1) + put(0) + "0" + ")" + put(1) + "0" +
                            global("torch._utils", "_rebuild_tensor") + put(2) + "0}(";
         return body +
                fill(30'000'000,
                     [](size_t i) {
                       return text(std::to_string(i)) + get(2) + "(" + get(0) + std::string("K\0", 2) +
                              get(1) + get(1) + "tR";
                     }) +
                "u";
       })},
      {"tensors_shared_millions", f, "one tensor under as many names as 20 MB can hold", memory, pickle([] {
         return one_float() + put(0) + "0}(" +
                fill(20'000'000, [](size_t i) { return text("module." + std::to_string(i)) + get(0); }) + "u";
       })},
      {"tensors_shared_many", f, "one tensor under 45,000 names, which are all renamed", "", pickle([] {
         std::string body = one_float() + put(0) + "0}(";
         for (int i = 0; i < 45'000; ++i) body += text("module." + std::to_string(i)) + get(0);
         return body + "u";
       })},
  };
  attacks.insert(attacks.end(), tensors.begin(), tensors.end());
  return attacks;
}

std::vector<Attack> stream_attacks() {
  const char* f = "pickle stream";
  const auto changed = [](const auto& change) {
    return pt([=] {
      Stream stream;
      change(stream);
      return stream.bytes();
    });
  };
  return {
      {"stream_magic_wrong", f, "another number first", "not one that torch.save wrote",
       changed([](Stream& s) { s.magic = integer(1); })},
      {"stream_magic_call", f, "os.system in the place of the number", "refuses to call 'os.system'",
       changed([](Stream& s) { s.magic = system_call("os", "system"); })},
      {"stream_protocol_wrong", f, "version 1002", "expected version 1001",
       changed([](Stream& s) { s.protocol = "M\xea\x03"; })},
      {"stream_machine_not_a_dict", f, "no byte order", "expected the byte order",
       changed([](Stream& s) { s.machine = "N"; })},
      {"stream_big_endian", f, "big-endian numbers", "big-endian",
       changed([](Stream& s) { s.machine = dict({text("little_endian"), "\x89"}); })},
      {"stream_keys_not_a_list", f, "a dictionary for the list of storages", "expected the list of storages",
       changed([](Stream& s) { s.keys = "}"; })},
      {"stream_keys_unknown", f, "a storage that no tensor uses",
       "expected the key of a storage that a tensor uses",
       changed([](Stream& s) { s.keys = "](" + text("7") + "e"; })},
      {"stream_keys_too_many", f, "more storages than the file has bytes for",
       "expected a storage's number of elements", changed([](Stream& s) {
         std::string items;
         s.keys = "](";
         for (int i = 0; i < 1000; ++i) {
           items += text("t" + std::to_string(i)) + tensor(storage(std::to_string(i), 1), 0, {1}, {1});
           s.keys += text(std::to_string(i));
         }
         s.object = "}(" + items + "u";
         s.keys += "e";
       })},
      {"stream_storage_twice", f, "a storage twice", "storage '0' is there twice", changed([](Stream& s) {
         s.keys = "](" + text("0") + text("0") + "e";
         s.storages += s.storages;
       })},
      {"stream_storage_missing", f, "a storage that is not listed", "storage '0' is not in the file",
       changed([](Stream& s) {
         s.keys = "]";
         s.storages.clear();
       })},
      {"stream_numel_differs", f, "another number of elements than the tensor's storage",
       "expected storage '0' of 1 elements, found 2",
       changed([](Stream& s) { s.storages = number<int64_t>(2) + "abcdefgh"; })},
      {"stream_numel_absurd", f, "2^62 elements", "expected storage '0' of 4611686018427387904 elements",
       changed([](Stream& s) {
         s.object = dict({text("w"), tensor(storage("0", int64_t{1} << 62), 0, {1}, {1})});
         s.storages = number<int64_t>(int64_t{1} << 62) + "abcd";
       })},
      {"stream_numel_beyond_file", f, "more elements than the file has bytes", "expected a storage's data",
       changed([](Stream& s) {
         s.object = dict({text("w"), tensor(storage("0", 1000), 0, {1}, {1})});
         s.storages = number<int64_t>(1000) + "abcd";
       })},
      {"stream_left_over", f, "bytes at the end", "bytes at the end belong to no tensor",
       changed([](Stream& s) { s.storages += "zz"; })},
      {"stream_two_types", f, "one storage as one float and as 8 doubles", "leave its storage of 4 bytes",
       changed([](Stream& s) {
         s.object =
             dict({text("v"), one_float(), text("w"), tensor(storage("0", 8, "DoubleStorage"), 0, {8}, {1})});
       })},
      {"stream_object_bomb", f, "millions of lists in the object", "more memory than",
       changed([](Stream& s) { s.object = repeat("]", 20'000'000); })},
      {"stream_truncated", f, "cut at every byte", "it is", cut(".pt", 1, [] { return Stream().bytes(); })},
  };
}

std::vector<Attack> script_attacks() {
  const char* f = "TorchScript";
  const auto net = [] { return std::vector<Record>{{"a/code/__torch__.py", module_source()}}; };
  const char* memory = "more memory than";
  return {
      {"script_class_without_code", f, "a class whose source is not there",
       "no code for the class '__torch__.Net'",
       pt([] { return script(script_module(dict({text("w"), one_float()})), {}); })},
      {"script_class_not_in_code", f, "a class that its source has not",
       "no code for the class '__torch__.Net'", pt([] {
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", module_source("Other")}});
       })},
      {"script_class_parent_folder", f, "a class of '__torch__.../etc/passwd'", "no code for the class",
       pt([] {
         return script(
             global("__torch__.../../../etc", "passwd") + ")\x81" + dict({text("w"), one_float()}) + "b", {});
       })},
      {"script_call_os_system", f, "os.system among the modules", "refuses to call 'os.system'",
       pt([=] { return script(script_module(dict({text("w"), system_call("os", "system")})), net()); })},
      {"script_class_in_pickle", f, "a TorchScript class without being TorchScript",
       "refuses to call '__torch__.Net'",
       pickle([] { return script_module(dict({text("w"), one_float()})); })},
      {"script_modules_million", f, "30 levels of modules, each with two of the next", "it has more than",
       pt([=] {
         std::string body = script_module(dict({text("k"), "N"}));
         for (int i = 0; i < 30; ++i) {
           body += put(1) + "0" + script_module(dict({text("a"), get(1), text("b"), get(1)}));
         }
         return script(body, net());
       })},
      {"script_tensors_million", f, "the same, with a tensor in the last", memory, pt([=] {
         std::string body = script_module(dict({text("w"), one_float()}));
         for (int i = 0; i < 30; ++i) {
           body += put(1) + "0" + script_module(dict({text("a"), get(1), text("b"), get(1)}));
         }
         return script(body, net());
       })},
      {"script_modules_wide", f, "50,000 modules that share 50,000 attributes", "it has more than", pt([=] {
         std::string state = "}(" + repeat(text("k") + "N", 50'000) + "u" + put(0) + "0";
         state += script_module(get(0)) + put(1) + "0";
         return script(state + script_module("}(" + repeat(text("m") + get(1), 50'000) + "u"), net());
       })},
      {"script_modules_cyclic", f, "a module that contains itself", "nested more than 100 deep", pt([=] {
         return script(global("__torch__", "Net") + ")\x81" + put(0) + dict({text("a"), get(0)}) + "b",
                       net());
       })},
      {"script_modules_deep", f, "1000 modules, one in the other", "nested more than 100 deep", pt([=] {
         std::string body = script_module(dict({text("w"), one_float()}));
         for (int i = 0; i < 1000; ++i) body += put(1) + "0" + script_module(dict({text("a"), get(1)}));
         return script(body, net());
       })},
      {"script_names_giant", f, "a module that contains itself under a name of 10 MB", memory, pt([=] {
         return script(global("__torch__", "Net") + ")\x81" + put(0) +
                           dict({text(repeat("k", 10'000'000)), get(0)}) + "b",
                       net());
       })},
      {"script_names_giant_wide", f, "a module under a name of 5 MB, 100,000 times", memory, pt([=] {
         return script(text(repeat("k", 5'000'000)) + put(0) + "0" + script_module("}") + put(1) + "0" +
                           script_module("}(" + repeat(get(0) + get(1), 100'000) + "u"),
                       net());
       })},
      {"script_state_not_a_dict", f, "a state that is a tuple", "no parameters or buffers",
       pt([=] { return script(script_module(tuple({one_float()})), net()); })},
      {"script_state_missing", f, "a module without a state", "no parameters or buffers",
       pt([=] { return script(global("__torch__", "Net") + ")\x81", net()); })},
      {"script_code_giant", f, "9 MB of source", "more than the 8388608 expected at most", pt([] {
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", module_source() + repeat("#", 9'000'000)}});
       })},
      {"script_code_bomb", f, "source that inflates to 1 GB, and says so",
       "more than the 8388608 expected at most", pt([] {
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", deflated(repeat("\n", kMiB), 1024), 8, 0, 1024 * kMiB}});
       })},
      {"script_code_bomb_lies", f, "source that inflates to 1 GB, and says 1000 bytes",
       "does not inflate to its 1000 bytes", pt([] {
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", deflated(repeat("\n", kMiB), 1024), 8, 0, 1000}});
       })},
      {"script_code_short", f, "source that inflates to less than it says",
       "does not inflate to its 1000 bytes", pt([] {
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", deflated(module_source()), 8, 0, 1000}});
       })},
      {"script_code_garbage", f, "source that is not deflated", "does not inflate to its 1000 bytes", pt([] {
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", repeat("\xff", 100), 8, 0, 1000}});
       })},
      {"script_code_classes_millions", f, "8 MB of classes, deflated", memory, pt([] {
         const auto source = fill(8'000'000, [](size_t i) { return "class " + std::to_string(i) + "\n"; });
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", deflated(source), 8, 0, source.size()}});
       })},
      {"script_code_parameters_millions", f, "8 MB of parameters' names, deflated", memory, pt([] {
         const auto source = "class Net(Module):\n  __parameters__ = [" +
                             fill(8'000'000, [](size_t i) { return "\"" + std::to_string(i) + "\","; }) +
                             "]\n";
         return script(script_module(dict({text("w"), one_float()})),
                       {{"a/code/__torch__.py", deflated(source), 8, 0, source.size()}});
       })},
      {"script_code_files_many", f, "100 sources of 8 MB, deflated to 1 MB", memory, pt([] {
         std::vector<Record> code{{"a/code/__torch__.py", module_source()}};
         const std::string source = module_source() + repeat("#", 8'000'000);
         const std::string packed = deflated(source);
         std::string attributes = "}(";
         for (int i = 0; i < 100; ++i) {
           const std::string module = "m" + std::to_string(i);
           code.push_back({"a/code/__torch__/" + module + ".py", packed, 8, 0, source.size()});
           attributes += text(module) + global("__torch__." + module, "Net") + ")\x81}b";
         }
         return script(script_module(attributes + "u"), code);
       })},
  };
}

std::vector<Attack> other_attacks() {
  const char* f = "no checkpoint";
  return {
      {"file_empty", f, "an empty file", "the file is empty", pt([] { return ""; })},
      {"file_1_byte", f, "one byte", "it is not a checkpoint", pt([] { return "x"; })},
      {"file_zeros", f, "1 MB of zeros", "it is not a checkpoint",
       pt([] { return std::string(kMiB, '\0'); })},
      {"file_git_lfs", f, "a pointer of Git LFS", "pointer of Git LFS",
       pt([] { return "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"; })},
      {"file_html", f, "a web page", "a web page", pt([] { return "<!DOCTYPE html><html></html>"; })},
      {"file_tar", f, "a tar archive", "a tar archive",
       pt([] { return std::string(257, 'x') + "ustar" + std::string(250, '\0'); })},
      {"file_json", f, "JSON", "it is not a checkpoint", pt([] { return "{\"w\":[1,2,3]}"; })},
      {"file_pickle_protocol_0", f, "a pickle of protocol 0", "it is not a checkpoint",
       pt([] { return "cos\nsystem\n(S'id'\ntR."; })},
      {"file_missing", f, "no file at all", "No such file",
       [](const fs::path& folder) { return Paths{folder / "x.pt"}; }},
      {"file_name_long", f, "a name longer than a system allows", "File name too long",
       [](const fs::path& folder) { return Paths{folder / (repeat("x", 300) + ".pt")}; }},
      {"file_fifo", f, "a pipe without a writer", "is not a regular file",
       [](const fs::path& folder) {
         ::mkfifo((folder / "x.pt").c_str(), 0600);
         return Paths{folder / "x.pt"};
       }},
      {"file_dev_zero", f, "/dev/zero", "is not a regular file",
       [](const fs::path&) { return Paths{"/dev/zero"}; }},
      {"file_link_loop", f, "a link to itself", "Too many levels of symbolic links",
       [](const fs::path& folder) {
         fs::create_symlink("x.pt", folder / "x.pt");
         return Paths{folder / "x.pt"};
       }},
      {"file_link_to_nothing", f, "a link to a file that is not there", "No such file",
       [](const fs::path& folder) {
         fs::create_symlink("y.pt", folder / "x.pt");
         return Paths{folder / "x.pt"};
       }},
      {"file_unreadable", f, "a file that may not be read", "Permission denied",
       [](const fs::path& folder) {
         write_bytes(folder / "x.pt", saved_tensor(one_float()));
         fs::permissions(folder / "x.pt", fs::perms::none);
         return Paths{folder / "x.pt"};
       }},
      {"file_sparse_terabyte", f, "1 TB of nothing behind a zip's first bytes",
       "directory at its end is missing",
       [](const fs::path& folder) {
         write_bytes(folder / "x.pt", "PK\x03\x04");
         fs::resize_file(folder / "x.pt", uintmax_t{1} << 40);
         return Paths{folder / "x.pt"};
       }},
      {"folder_empty", "folder", "a folder of nothing", "has no checkpoint in it",
       [](const fs::path& folder) { return Paths{folder}; }},
      {"folder_unreadable", "folder", "a folder that may not be read", "Permission denied",
       [](const fs::path& folder) {
         fs::create_directory(folder / "x");
         fs::permissions(folder / "x", fs::perms::none);
         return Paths{folder / "x"};
       }},
      {"folder_link_loop", "folder", "a model.safetensors that is a link to itself",
       "has no checkpoint in it",
       [](const fs::path& folder) {
         fs::create_symlink("model.safetensors", folder / "model.safetensors");
         return Paths{folder};
       }},
      {"folder_fifo", "folder", "a model.safetensors that is a pipe", "has no checkpoint in it",
       [](const fs::path& folder) {
         ::mkfifo((folder / "model.safetensors").c_str(), 0600);
         return Paths{folder};
       }},
      {"folder_names_control_characters", "folder", "files named with line breaks and colors",
       "has several checkpoints",
       [](const fs::path& folder) {
         write_bytes(folder / "a\n.pt", "x");
         write_bytes(folder / "\x1b[31m.pt", "x");
         return Paths{folder};
       }},
      {"folder_name_control_characters", "folder", "a broken file named with line breaks and colors",
       "it is not a checkpoint",
       [](const fs::path& folder) {
         write_bytes(folder / "a\n\x1b[31m.pt", "x");
         return Paths{folder};
       }},
  };
}

std::vector<Attack> all_attacks() {
  std::vector<Attack> all;
  for (auto& list : {safetensors_attacks(), index_attacks(), zip_attacks(), pickle_attacks(),
                     stream_attacks(), script_attacks(), other_attacks()}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

// A control character, or bytes that are not UTF-8: neither belongs on a terminal.
bool fit_to_print(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0;
    };
    const size_t size = byte(0) < 0x80 ? 1 : byte(0) < 0xC2 ? 0 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
    if (size == 0 || byte(0) < 0x20 || byte(0) == 0x7f || (byte(0) == 0xC2 && byte(1) < 0xA0)) return false;
    for (size_t k = 1; k < size; ++k) {
      if ((byte(k) & 0xC0) != 0x80) return false;
    }
    i += size;
  }
  return true;
}

size_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoul(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}

// The most memory that an action needs beyond what the process has, the mapped file included.
class PeakMemory {
 public:
  PeakMemory() {
    ::malloc_trim(0);  // or what the test freed would be used again, unseen
    measured_ = static_cast<bool>(std::ofstream("/proc/self/clear_refs") << 5 << std::flush);
    before_ = status_bytes("VmRSS:");
  }
  bool measured() const { return measured_; }
  size_t growth() const { return status_bytes("VmHWM:") - std::min(before_, status_bytes("VmHWM:")); }

 private:
  bool measured_;
  size_t before_;
};

// Files may be forbidden to everybody but root; then root takes on another identity for a while.
class WithoutRights {
 public:
  WithoutRights() : root_(::geteuid() == 0 && ::seteuid(65534) == 0) {}
  ~WithoutRights() {
    if (root_ && ::seteuid(0) != 0) std::abort();
  }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;

 private:
  bool root_;
};

void open_and_read(const fs::path& path) {
  const Checkpoint checkpoint(path);
  for (const auto& name : checkpoint.names()) {
    const int64_t numel = checkpoint.entry(name).numel(), some = std::min<int64_t>(numel, 1000);
    EXPECT_EQ(checkpoint.tensor(name).numel(), numel);
    EXPECT_EQ(checkpoint.slice(name, 0, some).numel(), some);
    EXPECT_EQ(checkpoint.slice(name, numel - some, some).numel(), some);
  }
}

class Corrupt : public ::testing::TestWithParam<Attack> {
 protected:
  Corrupt() : folder_(fs::temp_directory_path() / ("tpgm-corrupt-" + std::to_string(::getpid()))) {
    test::remove_folder(folder_);
    fs::create_directories(folder_);
  }
  ~Corrupt() override {
    std::error_code error;
    fs::permissions(folder_ / "x", fs::perms::all, error);  // or a folder could not be removed
    test::remove_folder(folder_);
  }

  fs::path folder_;
};

TEST_P(Corrupt, IsRefused) {
  const Attack& attack = GetParam();
  const Paths paths = attack.build(folder_);
  ASSERT_FALSE(paths.empty());
  size_t size = 0;
  for (const auto& item : fs::directory_iterator(folder_)) {
    std::error_code error;
    if (item.is_regular_file(error)) size += item.file_size();
  }
  const bool forbidden = attack.name.ends_with("_unreadable");
  if (forbidden && ::geteuid() == 0) fs::permissions(folder_, fs::perms::all);

  std::vector<std::string> messages;
  const PeakMemory memory;
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& path : paths) {
    try {
      std::optional<WithoutRights> rights;
      if (forbidden) rights.emplace();
      open_and_read(path);
      messages.emplace_back();
    } catch (const c10::Error& error) {
      messages.emplace_back(error.what_without_backtrace());
    } catch (const std::exception& error) {
      FAIL() << "not a c10::Error: " << std::string(error.what()).substr(0, 2000);
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const size_t growth = memory.growth();

  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string& message = messages[i];
    if (attack.expected.empty()) {
      EXPECT_EQ(message.substr(0, 2000), "") << "it should open";
      continue;
    }
    EXPECT_NE(message.find(attack.expected), std::string::npos)
        << "expected '" << attack.expected << "', got: " << message.substr(0, 2000);
    const bool named = message.find(paths[i].string()) != std::string::npos ||
                       message.find(folder_.string() + "/") != std::string::npos;
    EXPECT_TRUE(named) << "no file in: " << message.substr(0, 2000);
    EXPECT_LT(message.size(), 1000U);
    EXPECT_TRUE(fit_to_print(message)) << ::testing::PrintToString(message.substr(0, 2000));
  }
  EXPECT_LT(took.count(), kSanitized ? 60 : 5) << "seconds";
  RecordProperty("MiB", static_cast<int>(growth / kMiB));
  if (!kSanitized && memory.measured()) {
    EXPECT_LE(growth, size + 64 * kMiB) << growth / kMiB << " MiB for " << size / kMiB << " MiB of files";
  }
}

INSTANTIATE_TEST_SUITE_P(Attack, Corrupt, ::testing::ValuesIn(all_attacks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tpgm

// A pickle where the rest of the file is in order, so that no zip structure has to be guessed. The first byte
// chooses the file: an archive, a TorchScript archive, or a stream from before PyTorch 1.6, of which the
// input then is all but the first three pickles.
#include <initializer_list>
#include <utility>

#include "tests/fuzz/support.h"
#include "tpgm/io/torch_file.h"

using namespace tpgm;

namespace {

constexpr std::string_view kStreamStart(
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  // the magic number
    "\x80\x02M\xe9\x03."                                         // version 1001
    "\x80\x02}X\x0d\0\0\0little_endian\x88s.",
    15 + 6 + 24);

// As LibTorch prints classes.
constexpr std::string_view kSource =
    "class M(Module):\n  __parameters__ = [\"w\", \"b\", ]\n  __buffers__ = [\"n\", ]\n  w : Tensor\n"
    "class L(Module):\n  __parameters__ = []\n  __buffers__ = []\n"
    "class N(NamedTuple):\n  w : Tensor\n";

void append(std::string& out, std::initializer_list<std::pair<uint64_t, int>> numbers) {
  for (const auto& [number, size] : numbers) out.append(reinterpret_cast<const char*>(&number), size);
}

// Stored records, 32-bit sizes: the least that is a zip archive.
std::string zip(std::initializer_list<std::pair<std::string_view, std::string_view>> records) {
  std::string out, directory;
  for (const auto& [name, data] : records) {
    const size_t header = out.size();
    append(out, {{0x04034b50, 4}, {0, 4}, {0, 2}, {0, 8}, {data.size(), 4}, {data.size(), 4}});
    append(out, {{name.size(), 2}, {0, 2}});
    out.append(name).append(data);
    append(directory, {{0x02014b50, 4}, {0, 4}, {0, 4}, {0, 8}, {data.size(), 4}, {data.size(), 4}});
    append(directory, {{name.size(), 2}, {0, 2}, {0, 2}, {0, 8}, {header, 4}});
    directory.append(name);
  }
  const size_t offset = out.size();
  out.append(directory);
  append(out, {{0x06054b50, 4}, {0, 4}, {records.size(), 2}, {records.size(), 2}});
  append(out, {{directory.size(), 4}, {offset, 4}, {0, 2}});
  return out;
}

}  // namespace

FUZZ(bytes) {
  if (bytes.empty()) return;
  static const std::string storage(1024, '\1');
  const auto choice = static_cast<unsigned char>(bytes.front()) % 4;
  bytes.remove_prefix(1);
  std::string file;
  if (choice == 0) {
    file = zip({{"a/data.pkl", bytes},
                {"a/byteorder", "little"},
                {"a/data/0", storage},
                {"a/data/1", storage},
                {"a/data/2", storage},
                {"a/data/3", storage},
                {"a/data/4", ""}});
  } else if (choice == 1) {
    file = zip({{"a/data.pkl", bytes},
                {"a/constants.pkl", "\x80\x02)."},
                {"a/code/__torch__.py", kSource},
                {"a/code/__torch__/m.py", kSource},
                {"a/data/0", storage},
                {"a/data/1", storage}});
  } else {
    file = std::string(kStreamStart).append(bytes);
  }
  // A copy of the exact size, so that the sanitizer detects a read past the end.
  const auto exact = std::make_unique<char[]>(file.size());
  std::copy(file.begin(), file.end(), exact.get());
  const std::string_view whole(exact.get(), file.size());

  fuzz::parse_or_refuse(whole.size(), [&] {
    const auto parsed = parse_torch_file(whole);
    fuzz::demand((parsed.format == "PyTorch pickle (before 1.6)") == (choice >= 2), "formats are told apart");
    fuzz::check_entries(parsed.entries, whole);
  });
}

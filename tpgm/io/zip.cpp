// Reads zip archives: the end record, the central directory, and the header of a record when it is used.
#include "tpgm/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace tpgm {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr size_t kEndSize = 22, kLocatorSize = 20, kLocalSize = 30, kMaxComment = 0xffff;
constexpr uint16_t kZip64Field = 1;
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kEncrypted = 1;

struct Directory {
  uint64_t records, size, offset;
};

Cursor cursor_at(std::string_view file, uint64_t offset, const char* what) {
  require(offset <= file.size(), "byte {}: expected {} of the zip archive, the file has only {} bytes",
          offset, what, file.size());
  return Cursor(file.substr(offset), offset);
}

void expect(Cursor& cursor, uint32_t signature, const char* what) {
  const size_t at = cursor.position();
  require(cursor.number<uint32_t>(what) == signature, "byte {}: expected {} of the zip archive", at, what);
}

// The end record is at the end of the file, followed only by a comment whose length it contains.
size_t find_end(std::string_view file) {
  require(file.size() >= kEndSize, "the file has {} bytes, too few for a zip archive", file.size());
  const size_t last = file.size() - kEndSize;
  for (size_t back = 0; back <= std::min(last, kMaxComment); ++back) {
    Cursor cursor(file.substr(last - back), last - back);
    if (cursor.number<uint32_t>("a signature") != kEnd) continue;
    cursor.take(16, "the end record");
    if (cursor.number<uint16_t>("the comment's length") == back) return last - back;
  }
  throw Malformed{"the zip archive's directory at its end is missing"};
}

Directory read_directory(std::string_view file) {
  const size_t end = find_end(file);
  Cursor cursor(file.substr(end), end);
  cursor.take(8, "the end record");
  const auto here = cursor.number<uint16_t>("a number of records");
  const auto records = cursor.number<uint16_t>("a number of records");
  const auto size = cursor.number<uint32_t>("the directory's size");
  const auto offset = cursor.number<uint32_t>("the directory's offset");
  Directory directory{records, size, offset};
  size_t directory_end = end;
  // PyTorch writes a 64-bit end record into every archive, whether it is needed or not.
  const bool locator =
      end >= kLocatorSize &&
      Cursor(file.substr(end - kLocatorSize)).number<uint32_t>("the zip64 locator") == kEnd64Locator;
  if (here == 0xffff || records == 0xffff || size == 0xffffffff || offset == 0xffffffff || locator) {
    require(locator, "byte {}: expected a zip64 locator", end);
    Cursor at_locator(file.substr(end - kLocatorSize), end - kLocatorSize);
    at_locator.take(8, "the zip64 locator");
    Cursor end64 =
        cursor_at(file, at_locator.number<uint64_t>("the zip64 end record's offset"), "the zip64 end record");
    directory_end = end64.position();
    expect(end64, kEnd64, "the zip64 end record");
    end64.take(28, "the zip64 end record");
    directory.records = end64.number<uint64_t>("a number of records");
    directory.size = end64.number<uint64_t>("the directory's size");
    directory.offset = end64.number<uint64_t>("the directory's offset");
  }
  require(directory.offset <= directory_end && directory.size <= directory_end - directory.offset,
          "the zip archive's directory ({} bytes at byte {}) does not lie before its end at byte {}",
          directory.size, directory.offset, directory_end);
  return directory;
}

// Sizes and offsets beyond 32 bits are in an extra field, which has only those that need it.
void read_zip64(std::string_view extra, size_t position, uint64_t& inflated, uint64_t& size,
                uint64_t& header) {
  Cursor cursor(extra, position);
  while (cursor.left() >= 4) {
    const auto id = cursor.number<uint16_t>("an extra field");
    const auto length = cursor.number<uint16_t>("an extra field's length");
    const size_t at = cursor.position();
    const auto field = cursor.take(length, "an extra field");
    if (id != kZip64Field) continue;
    Cursor numbers(field, at);
    for (uint64_t* value : {&inflated, &size, &header}) {
      if (*value == 0xffffffff) *value = numbers.number<uint64_t>("a zip64 size or offset");
    }
    return;
  }
}

}  // namespace

ZipArchive::ZipArchive(std::string_view file, MemoryBudget& budget) : file_(file) {
  const Directory directory = read_directory(file);
  Cursor cursor(file.substr(directory.offset, directory.size), directory.offset);
  NameGuard names;
  std::vector<std::pair<size_t, size_t>> extents;  // end of the records according to the directory
  for (uint64_t i = 0; i < directory.records; ++i) {
    budget.charge(256);
    const size_t at = cursor.position();
    expect(cursor, kCentralHeader, "a directory entry");
    cursor.take(4, "a directory entry");
    const auto flags = cursor.number<uint16_t>("flags");
    const auto method = cursor.number<uint16_t>("a compression method");
    cursor.take(8, "a directory entry");
    uint64_t size = cursor.number<uint32_t>("a size");
    uint64_t inflated = cursor.number<uint32_t>("a size");
    const auto name_size = cursor.number<uint16_t>("a name's length");
    const auto extra_size = cursor.number<uint16_t>("an extra field's length");
    const auto comment_size = cursor.number<uint16_t>("a comment's length");
    cursor.take(8, "a directory entry");
    uint64_t header = cursor.number<uint32_t>("an offset");
    const auto name = cursor.take(name_size, "a name");
    const size_t extra_at = cursor.position();
    read_zip64(cursor.take(extra_size, "an extra field"), extra_at, inflated, size, header);
    cursor.take(comment_size, "a comment");

    const auto shown = printable(name);
    require((flags & kEncrypted) == 0, "byte {}: record '{}' is encrypted", at, shown);
    require(method == kStored || method == kDeflated, "byte {}: record '{}' is compressed by method {}", at,
            shown, method);
    require(method == kDeflated || size == inflated, "byte {}: record '{}' is stored in {} bytes, but has {}",
            at, shown, size, inflated);
    const uint64_t least = kLocalSize + name.size();
    require(header <= directory.offset && least <= directory.offset - header &&
                size <= directory.offset - header - least,
            "byte {}: record '{}' ({} bytes at byte {}) does not lie before the directory at byte {}", at,
            shown, size, header, directory.offset);
    names.add(name);
    require(records_.emplace(name, ZipRecord{header, size, inflated, method == kDeflated}).second,
            "byte {}: record '{}' is there twice", at, shown);
    extents.emplace_back(header, header + least + size);
  }
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i) {
    require(extents[i - 1].second <= extents[i].first, "byte {}: two records of the zip archive overlap",
            extents[i].first);
  }
}

std::string_view ZipArchive::data(std::string_view name, const ZipRecord& record) const {
  Cursor cursor = cursor_at(file_, record.header, "a record");
  expect(cursor, kLocalHeader, "a record");
  cursor.take(22, "a record's header");
  const auto name_size = cursor.number<uint16_t>("a name's length");
  const auto extra_size = cursor.number<uint16_t>("an extra field's length");
  require(cursor.take(name_size, "a name") == name, "byte {}: the directory calls this record '{}'",
          record.header, printable(name));
  cursor.take(extra_size, "an extra field");
  return cursor.take(record.size, "a record's data");
}

std::string_view ZipArchive::stored(std::string_view name) const {
  const auto found = records_.find(name);
  require(found != records_.end(), "the archive has no record '{}'", printable(name));
  if (found->second.compressed) {
    throw Malformed{fmt::format("record '{}' is compressed, which PyTorch never does", printable(name)),
                    "load and save it again with torch.load and torch.save"};
  }
  return data(name, found->second);
}

std::string ZipArchive::text(std::string_view name, size_t limit) const {
  const auto found = records_.find(name);
  require(found != records_.end(), "the archive has no record '{}'", printable(name));
  const ZipRecord& record = found->second;
  require(record.inflated <= limit, "record '{}' has {} bytes, more than the {} expected at most",
          printable(name), record.inflated, limit);
  const auto packed = data(name, record);
  if (!record.compressed) return std::string(packed);
  std::string result(record.inflated, '\0');
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(std::min<size_t>(packed.size(), std::numeric_limits<uInt>::max()));
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  require(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "record '{}' cannot be inflated", printable(name));
  const int status = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  require(status == Z_STREAM_END && stream.avail_out == 0, "record '{}' does not inflate to its {} bytes",
          printable(name), record.inflated);
  return result;
}

}  // namespace tpgm

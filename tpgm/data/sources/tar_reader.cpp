// Parses the headers of tars, and checks every field.
#include "tpgm/data/sources/tar_reader.h"

#include <charconv>
#include <cstring>
#include <string_view>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/sources/tar_format.h"

namespace tpgm {
namespace {

constexpr uint64_t kLongestName = 64 << 10;  // and pax records
constexpr uint64_t kUnknown = UINT64_MAX;

template <size_t size>
std::string_view field(const char (&bytes)[size]) {
  return {bytes, ::strnlen(bytes, size)};
}

// Octal text between spaces, or, with the first bit set, a big-endian number.
template <size_t size>
uint64_t number(const char (&bytes)[size], const char* what, uint64_t at) {
  uint64_t value = 0;
  if ((bytes[0] & 0x80) != 0) {
    for (size_t i = 0; i < size; ++i) {
      require(value >> 55 == 0, "byte {}: the {} is too large", at, what);
      value = value << 8 | static_cast<uint8_t>(i == 0 ? bytes[0] & 0x7f : bytes[i]);
    }
    return value;
  }
  std::string_view text = field(bytes);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  require(!text.empty() && error == std::errc() && stop == text.data() + text.size(),
          "byte {}: the {} of a file is not a number", at, what);
  return value;
}

// Records "length key=value\n" of which path and size matter here.
void apply_pax(std::string_view records, std::string& name, uint64_t& size) {
  while (!records.empty()) {
    size_t length = 0;
    const auto [stop, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<size_t>(stop - records.data());
    require(error == std::errc() && length > digits + 2 && length <= records.size() &&
                records[digits] == ' ' && records[length - 1] == '\n',
            "a pax record is malformed");
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    require(equals != std::string_view::npos, "a pax record is malformed");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") name = value;
    if (key == "size") {
      uint64_t claimed = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), claimed);
      require(parsed.ec == std::errc(), "a pax record's size is not a number");
      size = claimed;
    }
    records.remove_prefix(length);
  }
}

}  // namespace

std::string TarReader::text(uint64_t size) {
  require(size <= kLongestName && size <= file_size_ - at_, "byte {}: a name of {} bytes", at_, size);
  std::string result(size, '\0');
  read_(at_, result.data(), size);
  return result;
}

std::optional<TarEntry> TarReader::next() {
  std::string long_name;
  uint64_t long_size = kUnknown;
  while (at_ < file_size_) {
    char start[2];
    if (at_ == 0 && file_size_ >= 2) {
      read_(0, start, 2);
      if (std::memcmp(start, "\x1f\x8b", 2) == 0) {
        throw Malformed{"it is compressed", "unpack it with gunzip: images are compressed already"};
      }
    }
    require(file_size_ - at_ >= kTarBlock, "byte {}: it ends in the middle of a header", at_);
    TarHeader header;
    read_(at_, reinterpret_cast<char*>(&header), kTarBlock);
    static constexpr char kZeros[kTarBlock]{};
    if (std::memcmp(&header, kZeros, kTarBlock) == 0) return std::nullopt;
    require(number(header.checksum, "checksum", at_) == tar_checksum(header),
            "byte {}: expected the header of a file, its checksum is wrong", at_);
    const uint64_t size = long_size != kUnknown ? long_size : number(header.size, "size", at_);
    const uint64_t header_at = at_;
    at_ += kTarBlock;
    require(size <= file_size_ - at_, "byte {}: it ends in the middle of a file of {} bytes", header_at,
            size);
    if (header.type == kTarGnuName) {
      long_name = text(size);
      long_name.resize(::strnlen(long_name.data(), long_name.size()));
    } else if (header.type == kTarPax) {
      apply_pax(text(size), long_name, long_size);
    }
    const uint64_t offset = at_;
    at_ += std::min((size + kTarBlock - 1) / kTarBlock * kTarBlock, file_size_ - at_);
    if (header.type == kTarGnuName || header.type == kTarPax || header.type == kTarPaxGlobal) continue;
    if (header.type != kTarFile && header.type != kTarOldFile) {
      long_name.clear();
      long_size = kUnknown;
      continue;
    }
    std::string name = long_name;
    if (name.empty()) {
      const bool posix = std::memcmp(header.magic, "ustar\0", 6) == 0;
      const std::string_view prefix = posix ? field(header.prefix) : std::string_view();
      name = fmt::format("{}{}{}", prefix, prefix.empty() ? "" : "/", field(header.name));
    }
    return TarEntry{std::move(name), offset, size};
  }
  return std::nullopt;
}

std::string TarReader::bytes(const TarEntry& entry) const {
  std::string result(entry.size, '\0');
  read_(entry.offset, result.data(), entry.size);
  return result;
}

}  // namespace tpgm

// Headers and padding of tar.
#include "tpgm/data/sources/tar_writer.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "tpgm/data/sources/tar_format.h"

namespace tpgm {
namespace {

// Numbers are octal text and a NUL.
void put_octal(char* field, size_t size, uint64_t value) {
  const std::string text = fmt::format("{:0{}o}", value, size - 1);
  TORCH_INTERNAL_ASSERT(text.size() < size, "a number too large for tar");
  std::memcpy(field, text.data(), text.size());
}

// "17 path=name\n", where 17 is its own length.
std::string pax_record(std::string_view name) {
  const size_t rest = name.size() + std::strlen(" path=\n");
  size_t length = rest + 1;
  while (length != rest + std::to_string(length).size()) length = rest + std::to_string(length).size();
  return fmt::format("{} path={}\n", length, name);
}

}  // namespace

void TarWriter::add(std::string_view name, std::string_view bytes) {
  if (name.size() > sizeof(TarHeader::name)) entry("pax-header", kTarPax, pax_record(name));
  entry(name.substr(0, sizeof(TarHeader::name)), kTarFile, bytes);
}

void TarWriter::entry(std::string_view name, char type, std::string_view bytes) {
  TarHeader header{};
  std::memcpy(header.name, name.data(), name.size());
  put_octal(header.mode, sizeof(header.mode), 0644);
  put_octal(header.uid, sizeof(header.uid), 0);
  put_octal(header.gid, sizeof(header.gid), 0);
  put_octal(header.size, sizeof(header.size), bytes.size());
  put_octal(header.mtime, sizeof(header.mtime), 0);
  header.type = type;
  std::memcpy(header.magic, "ustar\00000", 8);
  put_octal(header.checksum, 7, tar_checksum(header));
  header.checksum[7] = ' ';
  file_.write(&header, sizeof(header));
  file_.write(bytes.data(), bytes.size());
  static constexpr std::array<char, kTarBlock> kZeros{};
  const size_t padding = (kTarBlock - bytes.size() % kTarBlock) % kTarBlock;
  file_.write(kZeros.data(), padding);
  size_ += sizeof(header) + bytes.size() + padding;
}

void TarWriter::commit() {
  static constexpr std::array<char, 2 * kTarBlock> kEnd{};
  file_.write(kEnd.data(), kEnd.size());
  file_.commit();
}

}  // namespace tpgm

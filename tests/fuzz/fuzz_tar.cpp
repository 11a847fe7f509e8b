// A tar shard: its headers, then its samples; as it is, and with corrected checksums, which no mutation
// keeps.
#include "tests/fuzz/support.h"
#include "tpgm/data/sources/tar.h"
#include "tpgm/data/sources/tar_format.h"

using namespace tpgm;

namespace {

void correct_checksum(char* block) {
  TarHeader header;
  std::memcpy(&header, block, kTarBlock);
  std::snprintf(header.checksum, sizeof(header.checksum), "%06o", tar_checksum(header));
  std::memcpy(block, &header, kTarBlock);
}

void read_tar(std::string_view bytes, bool corrected) {
  TarReader tar(bytes.size(), [&](uint64_t at, char* to, size_t size) {
    fuzz::demand(at <= bytes.size() && size <= bytes.size() - at, "what is read lies within the file");
    std::memcpy(to, bytes.data() + at, size);
    const bool end = std::all_of(to, to + size, [](char byte) { return byte == 0; });
    if (corrected && size == kTarBlock && !end) correct_checksum(to);
  });
  for (const auto& sample : index_shard(tar)) {
    fuzz::demand(sample.offset <= bytes.size() && sample.size <= bytes.size() - sample.offset,
                 "an image lies within the file");
    fuzz::demand(
        !sample.key.empty() && sample.encoded.starts_with(sample.key) && is_image_name(sample.encoded),
        "an image has its sample's key");
  }
}

}  // namespace

FUZZ(bytes) {
  for (const bool corrected : {false, true}) {
    fuzz::parse_or_refuse(bytes.size(), [&] { read_tar(bytes, corrected); });
  }
}

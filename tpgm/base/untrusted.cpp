// The text of errors about untrusted files.
#include "tpgm/base/untrusted.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace tpgm {
namespace {

// The number of bytes of the first character of `text`; 0 if the character is not allowed in a message.
size_t printable_character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  uint32_t code = lead & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const auto within = [&](uint32_t first, uint32_t last) { return first <= code && code <= last; };
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  const bool direction = within(0x2028, 0x202E) || within(0x2066, 0x2069);  // and separators of lines
  return code < 0xA0 || overlong || direction || within(0xD800, 0xDFFF) || code > 0x10FFFF ? 0 : size;
}

}  // namespace

void refuse(const std::filesystem::path& path, const Malformed& malformed) {
  TORCH_CHECK(false, "'", printable(path.string(), kMaxPath), "': ", printable(malformed.reason, 600), "; ",
              malformed.advice);
}

std::string printable(std::string_view text, size_t limit) {
  std::string result;
  while (result.size() < text.size()) {
    const auto rest = text.substr(result.size());
    const size_t size = printable_character(rest);
    if (result.size() + std::max<size_t>(size, 1) > limit) return result + "…";
    if (size == 0) {
      result += '?';
    } else {
      result += rest.substr(0, size);
    }
  }
  return result;
}

void check_json_text(std::string_view text, size_t base) {
  constexpr size_t kMaxString = size_t{4} << 20, kMaxOther = size_t{1} << 20;
  require(!text.empty() && text.front() == '{', "byte {}: expected '{{', where JSON begins", base);
  // The parser buffers everything since the last string or number began.
  size_t begin = 0;
  bool string = false, number = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    require(letter != '\0', "byte {}: not JSON: a NUL byte", base + i);
    if (string) {
      if (letter == '\\' && i + 1 < text.size() && text[i + 1] != '\0') {
        ++i;
      } else if (letter == '"') {
        string = false;
        begin = i;
      }
      require(i - begin <= kMaxString, "byte {}: a string is longer than {} bytes", base + begin, kMaxString);
      continue;
    }
    const bool digit = (letter >= '0' && letter <= '9') || letter == '-';
    if (letter == '"' || (digit && !number)) begin = i;
    string = letter == '"';
    number = digit || (number && (letter == '.' || letter == '+' || letter == 'e' || letter == 'E'));
    require(i - begin <= kMaxOther, "byte {}: a number, or what is between two, is longer than {} bytes",
            base + begin, kMaxOther);
  }
}

}  // namespace tpgm

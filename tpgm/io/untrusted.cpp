// How a refusal reads.
#include "tpgm/io/untrusted.h"

#include <c10/util/Exception.h>

namespace tpgm {

void refuse(const char* call, const std::filesystem::path& path, const Malformed& malformed) {
  TORCH_CHECK(false, "[", call, "] '", path.string(), "': ", printable(malformed.reason, 600), "; ",
              malformed.advice);
}

std::string printable(std::string_view text, size_t limit) {
  std::string result;
  for (const char byte : text.substr(0, limit)) {
    result += static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f ? '?' : byte;
  }
  if (text.size() <= limit) return result;
  while (!result.empty() && (result.back() & 0xC0) == 0x80) result.pop_back();  // not half a UTF-8 character
  if (!result.empty() && (result.back() & 0x80) != 0) result.pop_back();
  return result + "…";
}

void check_json_text(std::string_view text, size_t base) {
  constexpr size_t kMaxString = size_t{8} << 20;
  require(!text.empty() && text.front() == '{', "byte {}: expected '{{', where JSON begins", base);
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    require(text[i] != '\0', "byte {}: not JSON: a NUL byte", base + i);
    if (inside && text[i] == '\\' && i + 1 < text.size() && text[i + 1] != '\0') {
      ++i;
    } else if (text[i] == '"') {
      inside = !inside;
      begin = i;
    }
    require(!inside || i - begin <= kMaxString, "byte {}: a string is longer than {} bytes", base + begin,
            kMaxString);
  }
}

}  // namespace tpgm

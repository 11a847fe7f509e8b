// Replaces unicode.cpp in a build without utf8proc.
#include <c10/util/Exception.h>

#include "tpgm/text/unicode.h"

namespace tpgm {

void require_unicode() {
  TORCH_CHECK(false,
              "[Tokenizer] this tpgm was built without utf8proc; install it (Debian, Ubuntu: apt-get install "
              "libutf8proc-dev) and build again");
}
std::u32string decode_utf8(std::string_view) { return {}; }
void append_utf8(char32_t, std::string&) {}
std::u32string compose(std::u32string_view) { return {}; }
void append_lowercase(char32_t, std::u32string&) {}
CharacterClass classify(char32_t) { return CharacterClass::other; }

}  // namespace tpgm

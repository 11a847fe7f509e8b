// Unicode by utf8proc, except where it would be slow on hostile text or stop at bytes that are not UTF-8.
#include "tpgm/text/unicode.h"

#include <c10/util/Exception.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tpgm {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The first character of `text` and its bytes; U+FFFD and the bytes to skip where there is none.
std::pair<char32_t, size_t> first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {kReplacement, 1};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // No overlong forms, no surrogates, nothing beyond U+10FFFF: the second byte decides.
  uint32_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint32_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t character = lead & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size() || byte(i) < least || byte(i) > most) return {kReplacement, i};
    character = character << 6 | (byte(i) & 0x3FU);
    least = 0x80;
    most = 0xBF;
  }
  return {character, size};
}

utf8proc_propval_t combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

}  // namespace

void require_unicode() {}

std::u32string decode_utf8(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const auto [character, size] = first_character(text);
    characters += character;
    text.remove_prefix(size);
  }
  return characters;
}

void append_utf8(char32_t character, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

std::u32string compose(std::u32string_view text) {
  constexpr char32_t kFirstMark =
      0x300;  // all before it stay as they are, and combine with nothing before them
  if (std::all_of(text.begin(), text.end(), [](char32_t c) { return c < kFirstMark; })) {
    return std::u32string(text);
  }
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::vector<utf8proc_int32_t> parts;
  parts.reserve(text.size() + text.size() / 4);
  for (const char32_t character : text) {
    utf8proc_int32_t decomposed[32];
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character), decomposed, 32,
                                               kOptions, &boundary);
    TORCH_INTERNAL_ASSERT(count >= 0 && count <= 32);
    parts.insert(parts.end(), decomposed, decomposed + count);
  }
  // utf8proc_decompose would bubble the marks into order, in quadratic time.
  for (auto begin = parts.begin(); begin != parts.end();) {
    const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
    begin = std::find_if_not(begin, parts.end(), is_starter);
    const auto end = std::find_if(begin, parts.end(), is_starter);
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  // U+11A7 is one before the first Hangul consonant that may end a syllable, and utf8proc (2.8) drops it
  // after a syllable. It combines with nothing, so that what is around it can be composed apart.
  constexpr utf8proc_int32_t kNoConsonant = 0x11A7;
  std::u32string composed;
  composed.reserve(parts.size());
  for (auto begin = parts.begin();;) {
    const auto end = std::find(begin, parts.end(), kNoConsonant);
    const auto size = utf8proc_normalize_utf32(parts.data() + (begin - parts.begin()), end - begin, kOptions);
    TORCH_INTERNAL_ASSERT(size >= 0);
    composed.append(begin, begin + size);
    if (end == parts.end()) return composed;
    composed += static_cast<char32_t>(kNoConsonant);
    begin = end + 1;
  }
}

void append_lowercase(char32_t character, std::u32string& text) {
  if (character == 0x130) {  // İ, the only one whose lower case is longer
    text += U"i\u0307";
  } else {
    text += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character)));
  }
}

CharacterClass classify(char32_t character) {
  if ((character >= 0x9 && character <= 0xD) || character == 0x85) return CharacterClass::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return CharacterClass::space;
    default:
      return CharacterClass::other;
  }
}

}  // namespace tpgm

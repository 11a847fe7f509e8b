// Decodes, classifies and normalizes Unicode characters for the tokenizer, with the tables of utf8proc.
//
// A build without utf8proc throws in require_unicode (no_unicode.cpp), and nothing else here may be called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tpgm {

/// \p{L}, \p{N}, \s, and all the rest: marks, signs, controls, what is not assigned.
enum class CharacterClass : uint8_t { letter, number, space, other };

/// Throws c10::Error if this build has no tables.
void require_unicode();

/// The characters of `text`. What is not UTF-8 becomes U+FFFD, one for each longest start of a character, as
/// in Python's decode(errors="replace").
std::u32string decode_utf8(std::string_view text);
/// Appends a character, which must be within Unicode and not a surrogate.
void append_utf8(char32_t character, std::string& text);

/// Normalization form C. Takes n log n time, whatever the text.
std::u32string compose(std::u32string_view text);
/// Appends the lower case of one character, whatever is around it: Σ is always σ, and İ becomes two
/// characters.
void append_lowercase(char32_t character, std::u32string& text);
CharacterClass classify(char32_t character);

}  // namespace tpgm

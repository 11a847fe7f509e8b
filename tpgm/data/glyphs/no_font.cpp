// Replaces font.cpp in a build without FreeType.
#include <c10/util/Exception.h>

#include "tpgm/data/glyphs/font.h"

namespace tpgm {

void require_freetype() {
  TORCH_CHECK(false,
              "[Font] this tpgm was built without FreeType; install it (Debian, Ubuntu: apt-get install "
              "libfreetype-dev) and build again");
}

struct Font::Face {};
Font::Font(const std::filesystem::path&, int64_t) { require_freetype(); }
Font::~Font() = default;
int64_t Font::count() const { return 0; }
std::string Font::family() const { return {}; }
std::string Font::style() const { return {}; }
bool Font::fixed_pitch() const { return false; }
std::array<uint8_t, 10> Font::panose() const { return {}; }
std::optional<Glyph> Font::draw(char32_t) const { return std::nullopt; }

}  // namespace tpgm

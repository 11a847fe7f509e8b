// Lists of fonts, and the hash that splits them.
#include "tpgm/data/glyphs/font_families.h"

#include <algorithm>
#include <cctype>

#include "tpgm/base/hash.h"

namespace tpgm {
namespace {

constexpr auto kSans = GlyphDomain::kSans, kSerif = GlyphDomain::kSerif, kMono = GlyphDomain::kMono,
               kHand = GlyphDomain::kHand, kDeco = GlyphDomain::kDeco;

// clang-format off
constexpr FontPackage kPackages[] = {
    {"fonts-aenigma", kDeco},
    {"fonts-adf-libris", kHand}, {"fonts-adf-oldania", kHand}, {"fonts-adf-romande", kHand},
    {"fonts-breip", kHand}, {"fonts-bwht", kHand}, {"fonts-comic-neue", kHand}, {"fonts-dancingscript", kHand},
    {"fonts-dkg-handwriting", kHand}, {"fonts-dustin", kHand}, {"fonts-ecolier-court", kHand},
    {"fonts-ecolier-lignes-court", kHand}, {"fonts-essays1743", kHand}, {"fonts-femkeklaver", kHand},
    {"fonts-havana", kHand}, {"fonts-humor-sans", kHand}, {"fonts-isabella", kHand}, {"fonts-joscelyn", kHand},
    {"fonts-kaushanscript", kHand}, {"fonts-kristi", kHand}, {"fonts-leckerli-one", kHand},
    {"fonts-levien-museum", kHand}, {"fonts-lindenhill", kHand}, {"fonts-linex", kHand},
    {"fonts-lobster", kHand}, {"fonts-lobstertwo", kHand}, {"fonts-opendyslexic", kHand},
    {"fonts-rufscript", kHand}, {"fonts-sjfonts", kHand},
    {"fonts-3270", kMono}, {"fonts-agave", kMono}, {"fonts-amiga", kMono}, {"fonts-anonymous-pro", kMono},
    {"fonts-firacode", kMono}, {"fonts-freefont-otf", kMono}, {"fonts-glasstty", kMono}, {"fonts-hack", kMono},
    {"fonts-hermit", kMono}, {"fonts-inconsolata", kMono}, {"fonts-jetbrains-mono", kMono},
    {"fonts-monofur", kMono}, {"fonts-monoid", kMono}, {"fonts-noto-mono", kMono}, {"fonts-ocr-a", kMono},
    {"fonts-ocr-b", kMono}, {"fonts-pc", kMono}, {"fonts-pc-extra", kMono}, {"fonts-proggy", kMono},
    {"fonts-sixtyfour", kMono}, {"fonts-spleen", kMono}, {"fonts-terminus", kMono},
    {"fonts-adf-accanthis", kSerif}, {"fonts-adf-baskervald", kSerif}, {"fonts-adf-tribun", kSerif},
    {"fonts-averia-serif-gwf", kSerif}, {"fonts-cardo", kSerif}, {"fonts-cmu", kSerif},
    {"fonts-crosextra-caladea", kSerif}, {"fonts-ebgaramond", kSerif}, {"fonts-ebgaramond-extra", kSerif},
    {"fonts-fanwood", kSerif}, {"fonts-gotico-antiqua", kSerif}, {"fonts-junicode", kSerif},
    {"fonts-linuxlibertine", kSerif}, {"fonts-oldstandard", kSerif}, {"fonts-vollkorn", kSerif},
    {"fonts-yrsa-rasa", kSerif},
    {"fonts-adf-gillius", kSans}, {"fonts-adf-ikarius", kSans}, {"fonts-adf-solothurn", kSans},
    {"fonts-adf-switzera", kSans}, {"fonts-adf-universalis", kSans}, {"fonts-adf-verana", kSans},
    {"fonts-arkpandora", kSans}, {"fonts-averia-sans-gwf", kSans}, {"fonts-b612", kSans},
    {"fonts-bebas-neue", kSans}, {"fonts-beteckna", kSans}, {"fonts-cabin", kSans}, {"fonts-clear-sans", kSans},
    {"fonts-comfortaa", kSans}, {"fonts-croscore", kSans}, {"fonts-crosextra-carlito", kSans},
    {"fonts-dejavu-core", kSans}, {"fonts-dosis", kSans}, {"fonts-eurofurence", kSans}, {"fonts-go", kSans},
    {"fonts-inter", kSans}, {"fonts-jura", kSans}, {"fonts-karla", kSans}, {"fonts-lato", kSans},
    {"fonts-league-spartan", kSans}, {"fonts-liberation", kSans}, {"fonts-manrope", kSans},
    {"fonts-national-park", kSans}, {"fonts-open-sans", kSans}, {"fonts-oxygen", kSans},
    {"fonts-paratype", kSans}, {"fonts-play", kSans}, {"fonts-quicksand", kSans},
    {"fonts-roboto-hinted", kSans}, {"fonts-sora", kSans}, {"fonts-tiresias", kSans}, {"fonts-tuffy", kSans},
    {"fonts-uralic", kSans},
};
// clang-format on

struct Prefix {
  std::string_view prefix;
  std::string_view family;
};

// Names are compared from their beginning, the first entry that fits counts.

// Fonts that share outlines under several names, or differ by a retouch or in pitch. Letter by letter the
// images of the first two kinds, brought to one size, correlate at 0.94 and more, where the likes of Inter
// and Roboto stay below.
constexpr Prefix kKin[] = {
    {"aerial", "dejavu"},       {"hack", "dejavu"},
    {"tymes", "dejavu"},        {"verana", "dejavu"},
    {"arimo", "liberation"},    {"cousine", "liberation"},
    {"tinos", "liberation"},    {"carlito", "lato"},
    {"free", "free"},           {"mono uralic", "free"},
    {"roman uralic", "free"},   {"sans uralic", "free"},
    {"sans condensed", "free"}, {"sans", "dejavu"},
    {"api ", "babel"},          {"emerita", "babel"},
    {"ipa ", "babel"},          {"rasa", "yrsa"},
    {"monofur", "eurofurence"}, {"noto", "open"},
    {"monoisome", "monoid"},    {"beteckna", "beteckna"},
    {"ocra", "ocra"},           {"opendyslexic", "opendyslexic"},
    {"veranda", "dejavu"},      {"mini kaliber", "kaliber"},
    {"vanished", "jasper"},
};

struct Domain {
  std::string_view prefix;
  GlyphDomain domain;
};

// Faces that say nothing of themselves, or the wrong thing, in a package that is mostly something else.
constexpr Domain kDomains[] = {
    {"romande adf script", kHand},
    {"romande", kSerif},
    {"dustismo roman", kSerif},
    {"dustismo", kSans},
    {"it wasn t", kDeco},
    {"junkyard", kDeco},
    {"penguin", kDeco},
    {"wargames", kDeco},
    {"essays1743", kSerif},
    {"linden hill", kSerif},
    {"jara", kSans},
    {"quercus", kSerif},
    {"opendyslexicm", kMono},
    {"opendyslexic", kSans},
    {"verana sans", kSans},
    {"verana", kSerif},
    {"cmu bright", kSans},
    {"cmu sans", kSans},
    {"linux biolinum", kSans},
    {"linux libertine mono", kMono},
    {"bookman", kSerif},
    {"chancery", kHand},
    {"palladio", kSerif},
    {"roman uralic", kSerif},
    {"schoolbook", kSerif},
    {"national park outline", kDeco},
};

// Greek on Latin keys, key caps, black on white, ornaments and pieces of letters; and capitals, plain or
// small, for small letters (or the other way about) that are not alike enough for a program to see.
constexpr std::string_view kOthers[] = {
    "alfa beta",    "ellhnikh",        "linux biolinum keyboard",
    "3d let",       "90 stars",        "bit blocks",
    "code of life", "entangled layer", "faux snow",
    "head ding",    "line dings",      "nucleus",
    "skull capz",   "snailets",        "symmetry",
    "tearful",      "ocr b inverted",  "because we",
    "humor sans",   "eb garamond sc",  "romande adf style",
    "solothurn",    "unifur",          "fatboy slim",
    "lynx",         "mishmash",        "vertigo",
};

// "It wasn't me" → "it wasn t me".
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte)) {
      text += static_cast<char>(std::tolower(byte));
    } else if (!text.empty() && text.back() != ' ') {
      text += ' ';
    }
  }
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

// In [0, 1).
double share(std::string_view text) { return static_cast<double>(stable_hash(text) >> 11) * 0x1p-53; }

// Large families make a lottery of a small domain's split. 366 is the first number that gives 7 families and
// 84 faces of sans to train, 2 and 14 each to fit radii and to select by, and 7 and 14 of every domain to
// test. It was chosen before any model saw an image.
constexpr std::string_view kDraw = "glyphs 366: ", kSecondDraw = "glyphs 366, fine-tuning: ";

}  // namespace

std::span<const FontPackage> glyph_packages() { return kPackages; }

uint64_t stable_hash(std::string_view text) {
  uint64_t hash = fnv1a(text);
  // FNV-1a alone leaves the upper bits of short texts much alike.
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

std::string glyph_family(std::string_view font_family) {
  const std::string name = plain(font_family);
  for (const auto& kin : kKin) {
    if (name.starts_with(kin.prefix)) return std::string(kin.family);
  }
  return name.substr(0, name.find(' '));
}

GlyphSplit glyph_split(const std::string& family) {
  const double part = share(std::string(kDraw) + family);
  if (part < 0.5) return GlyphSplit::kPretrain;
  if (part >= 0.75) return GlyphSplit::kTest;
  const double held_out = share(std::string(kSecondDraw) + family);
  return held_out < 0.7 ? GlyphSplit::kTrain : held_out < 0.85 ? GlyphSplit::kRadius : GlyphSplit::kSelection;
}

GlyphDomain glyph_domain(std::string_view face, bool fixed_pitch, const std::array<uint8_t, 10>& panose,
                         const FontPackage& package) {
  // What the decorative fonts say of themselves was filled in by a tool.
  if (package.domain == kDeco) return kDeco;
  const std::string name = plain(face);
  for (const auto& known : kDomains) {
    if (name.starts_with(known.prefix)) return known.domain;
  }
  const auto [family, serifs, weight, proportion, contrast, stroke, arm, form, midline, height] = panose;
  if (fixed_pitch || (family == 2 && proportion == 9)) return kMono;
  if (family == 3) return kHand;
  if (family == 4) return kDeco;
  if (family == 2 && serifs >= 2) return serifs <= 10 ? kSerif : kSans;
  return package.domain;
}

bool draws_other_things(std::string_view face) {
  const std::string name = plain(face);
  return std::any_of(std::begin(kOthers), std::end(kOthers),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace tpgm

#include "tpgm/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tpgm/report/svg.h"

namespace tpgm {
namespace {

using svg::escaped;

// The colors of the background are those of the figures (svg.cpp), whose own background is left out here.
constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--page:#fff;--ink:#222;--soft:#5c5c5c;--rule:#ddd;--box:#f6f6f6;
--link:#0b5cad;--shade:#0002;--correct:#00704f;--wrong:#b34700}
@media screen and (prefers-color-scheme:dark){:root{--page:#161616;--ink:#ddd;--soft:#a3a3a3;--rule:#3a3a3a;
--box:#1f1f1f;--link:#7cb8f2;--shade:#fff2;--correct:#4cc9a0;--wrong:#f5955a}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;overflow-wrap:break-word}
.sheet{max-width:54rem;margin:0 auto;padding:2.5rem 1.5rem 5rem}
header{margin-bottom:2rem}
h1{font-size:1.9rem;line-height:1.2;letter-spacing:-.015em;margin:0 0 .4rem;text-wrap:pretty}
h2{font-size:1.3rem;line-height:1.3;letter-spacing:-.01em;margin:3.25rem 0 .9rem;padding-top:1.1rem;
border-top:1px solid var(--rule);scroll-margin-top:.5rem}
section:first-of-type>h2{margin-top:2rem}
p{max-width:42rem;margin:.8rem 0}
header p{color:var(--soft);margin:0}
a{color:var(--link);text-underline-offset:.15em;text-decoration-thickness:1px}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
nav ol{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;font-size:.92rem}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
figure{margin:1.75rem 0}
figcaption{color:var(--soft);font-size:.9rem;line-height:1.45;max-width:42rem}
.drawing figcaption{margin-top:.4rem}
/* figures have a margin of their own: it stands in the page's */
.drawing svg{display:block;height:auto;max-width:calc(100% + 24px);margin:0 -12px}
.drawing .scroll svg{max-width:100%;margin:0}
h2+figure{margin-top:1.1rem}
.drawing .page{fill:none}
.drawing path.page{fill:var(--page)}
.data{font-size:.82rem;white-space:nowrap}
.for-narrow{display:none}
/* a shadow at the right while there is more */
.scroll{overflow-x:auto;max-width:100%;background:linear-gradient(to left,var(--page) 30%,transparent) right/2.5rem
100% no-repeat local,linear-gradient(to left,var(--shade),transparent) right/.8rem 100% no-repeat scroll}
.table figcaption{color:var(--ink);font-weight:600;margin-bottom:.5rem}
.table .note{color:var(--soft);font-size:.9rem;margin:.4rem 0 0}
table{border-collapse:separate;border-spacing:0;font-size:.92rem;line-height:1.35;
font-variant-numeric:tabular-nums;border-top:1.5px solid var(--ink);border-bottom:1.5px solid var(--ink)}
th,td{padding:.38rem .75rem;text-align:right;white-space:nowrap;font-weight:400;vertical-align:baseline}
th:first-child,td:first-child{text-align:left;padding-left:.15rem;position:sticky;left:0;background:var(--page);
z-index:1}
thead th{font-weight:600;vertical-align:bottom}
thead tr:last-child th{border-bottom:1px solid var(--ink)}
.groups th{padding-bottom:0;text-align:center}
.groups span{display:block;border-bottom:1px solid var(--rule);padding-bottom:.2rem}
.ruled th,.ruled td{border-top:1px solid var(--rule)}
tbody tr:hover th,tbody tr:hover td{background:var(--box)}
.long{white-space:normal;min-width:15rem;max-width:26rem;text-align:left}
.images{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:1.5rem 1.1rem;margin-top:.8rem}
.image{font-size:.84rem;line-height:1.35;min-width:0}
.image img{display:block;max-width:100%;height:auto;border:1px solid var(--rule);border-radius:3px;
margin-bottom:.45rem}
.image .pixels{image-rendering:pixelated}
.image p{margin:0 0 .3rem;font-weight:600}
.image ul{list-style:none;margin:0;padding:0}
.image li{padding-left:1.15em;text-indent:-1.15em}
.image b{font-weight:400;color:var(--soft)}
.image i{font-style:normal;font-weight:700;display:inline-block;width:1.15em;text-indent:0}
.correct i{color:var(--correct)}
.wrong i{color:var(--wrong)}
.examples>div{display:flex;flex-wrap:wrap;gap:1rem 1.5rem}
.group>p{margin:0 0 .4rem;font-weight:600;font-size:.84rem}
.group>div{display:flex;gap:.5rem}
.group .image{width:4.5rem;font-size:.74rem}
.group .image p{font-weight:400;color:var(--soft)}
.examples figcaption{margin-top:.5rem}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.code{margin:1.25rem 0}
.code>p{margin:0 0 .35rem;font-weight:600;font-size:.92rem}
summary{cursor:pointer;font-weight:600;font-size:.92rem;padding:.15rem 0}
pre{margin:.35rem 0 0;padding:.8rem 1rem;background:var(--box);border:1px solid var(--rule);border-radius:4px;
overflow-x:auto;font:.82rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;tab-size:2}
@media (min-width:72rem){
.sheet{max-width:74rem;display:grid;grid-template-columns:13rem minmax(0,54rem);column-gap:3.5rem;
justify-content:center}
header,main{grid-column:2}
nav{grid-column:1;grid-row:1/span 2;position:sticky;top:2.5rem;align-self:start;max-height:calc(100vh - 5rem);
overflow-y:auto}
nav ol{display:block;padding-top:.4rem}
nav li{margin-bottom:.5rem;line-height:1.35}
}
@media (max-width:35rem){
.sheet{padding:1.5rem 1rem 3rem}
h1{font-size:1.55rem}
h2{margin-top:2.5rem}
.for-wide{display:none}
.for-narrow{display:block}
.drawing .scroll svg{max-width:none;min-width:30rem}
th,td{padding:.38rem .55rem}
th:first-child,td:first-child{max-width:9rem;white-space:normal}
.images{grid-template-columns:repeat(2,minmax(0,1fr))}
}
@media print{
@page{margin:16mm}
body{font-size:10.5pt}
.sheet{display:block;max-width:none;padding:0}
nav,.data{display:none}
h2{break-after:avoid;margin-top:1.8rem}
figure.drawing,.image,tr,.code>p{break-inside:avoid}
figcaption{break-after:avoid}
.drawing figcaption{break-before:avoid}
thead{display:table-header-group}
.scroll,pre{overflow:visible;background:none}
table{font-size:.8rem;max-width:100%}
th,td{padding:.25rem .5rem;white-space:normal}
th:first-child,td:first-child{position:static}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
details::details-content{content-visibility:visible;block-size:auto}
.images{grid-template-columns:repeat(5,minmax(0,1fr))}
}
)css";

constexpr size_t kMostData = 65536;                      // of a figure within the page
constexpr uint32_t kImageSize = 128, kExampleSize = 72;  // pixels; smaller images are enlarged

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  result.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(bytes.size() - i, 3);
    uint32_t three = 0;
    for (size_t j = 0; j < 3; ++j) three = three << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) result += j <= count ? kDigits[three >> (18 - 6 * j) & 63] : '=';
  }
  return result;
}

// Width and height, from the header.
std::pair<uint32_t, uint32_t> size_of(const GalleryImage& image) {
  using namespace std::string_view_literals;
  const std::string_view png = image.png;
  const auto number = [png](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(png[at + i]);
    return value;
  };
  if (png.size() < 24 || !png.starts_with("\x89PNG\r\n\x1A\n"sv) || png.substr(12, 4) != "IHDR" ||
      number(16) == 0 || number(20) == 0) {
    throw std::invalid_argument(
        fmt::format("[page] the image '{}' is not a PNG; encode it as one", image.alt));
  }
  return {number(16), number(20)};
}

void check(const Figure& figure, std::set<std::string>& taken) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const auto fail = [&figure](const char* what) {
    throw std::invalid_argument(fmt::format("[page] the figure '{}' {}", figure.id, what));
  };
  if (figure.id.empty() || figure.id[0] == '.' || !std::all_of(figure.id.begin(), figure.id.end(), good)) {
    fail("has an id that is not a file name; take letters, digits, '-', '_' and '.', which is not the first");
  }
  if (!taken.insert(figure.id).second) fail("is there twice; give each an id of its own");
  if (!figure.svg.starts_with("<svg") || (!figure.narrow.empty() && !figure.narrow.starts_with("<svg"))) {
    fail("is not an SVG; draw it with to_svg");
  }
}

class Writer {
 public:
  explicit Writer(const Page& page) {
    const auto title = escaped(page.title);
    // The policy holds even against markup that would slip through: nothing is loaded, no script runs.
    html_ = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<meta name=\"color-scheme\" content=\"light "
        "dark\"/>\n<title>{}</title>\n<style>{}</style>\n</head>\n"
        "<body>\n<div class=\"sheet\">\n<header>\n<h1>{}</h1>\n",
        title, kStyle, title);
    if (!page.subtitle.empty()) html_ += fmt::format("<p>{}</p>\n", escaped(page.subtitle));
    html_ += "</header>\n";
    if (page.sections.size() > 1) contents(page);
    html_ += "<main>\n";
    for (size_t i = 0; i < page.sections.size(); ++i) {
      const auto& section = page.sections[i];
      html_ += fmt::format("<section>\n<h2 id=\"section-{}\">{}</h2>\n", i + 1, escaped(section.title));
      for (const auto& block : section.blocks) std::visit([this](const auto& each) { write(each); }, block);
      html_ += "</section>\n";
    }
    html_ += "</main>\n</div>\n</body>\n</html>\n";
  }

  std::string html() && { return std::move(html_); }

 private:
  void contents(const Page& page) {
    html_ += "<nav aria-label=\"Contents\">\n<ol>\n";
    for (size_t i = 0; i < page.sections.size(); ++i) {
      html_ +=
          fmt::format("<li><a href=\"#section-{}\">{}</a></li>\n", i + 1, escaped(page.sections[i].title));
    }
    html_ += "</ol>\n</nav>\n";
  }

  void write(const Paragraph& paragraph) { html_ += fmt::format("<p>{}</p>\n", escaped(paragraph.text)); }

  void write(const Table& table) { html_ += to_html(table); }

  void write(const FoldedTable& folded) {
    html_ += fmt::format("<details>\n<summary>{}</summary>\n{}</details>\n", escaped(folded.title),
                         to_html(folded.table));
  }

  void write(const Figure& figure) {
    check(figure, ids_);
    html_ += fmt::format("<figure class=\"drawing\" id=\"figure-{}\">\n", figure.id);
    if (figure.narrow.empty()) {
      html_ += fmt::format("<div class=\"scroll\" tabindex=\"0\">\n{}</div>\n", figure.svg);
    } else {
      html_ += fmt::format("<div class=\"for-wide\">\n{}</div>\n<div class=\"for-narrow\">\n{}</div>\n",
                           figure.svg, figure.narrow);
    }
    html_ += "<figcaption>" + escaped(figure.caption);
    if (!figure.csv.empty() && figure.csv.size() <= kMostData) {
      html_ += fmt::format(
          " <a class=\"data\" download=\"{0}.csv\" href=\"data:text/csv;charset=utf-8;base64,{1}\" "
          "aria-label=\"Data of {0} as CSV\">Data (CSV)</a>",
          figure.id, base64(figure.csv));
    }
    html_ += "</figcaption>\n</figure>\n";
  }

  void write(const Gallery& gallery) {
    html_ += "<figure class=\"gallery\">\n";
    if (!gallery.caption.empty())
      html_ += fmt::format("<figcaption>{}</figcaption>\n", escaped(gallery.caption));
    html_ += "<div class=\"images\">\n";
    for (const auto& image : gallery.images) write(image);
    html_ += "</div>\n</figure>\n";
  }

  void write(const ExampleImages& examples) {
    html_ += "<figure class=\"examples\">\n<div>\n";
    for (const auto& group : examples.groups) {
      html_ += fmt::format("<div class=\"group\">\n<p>{}</p>\n<div>\n", escaped(group.title));
      for (const auto& image : group.images) write(image, kExampleSize);
      html_ += "</div>\n</div>\n";
    }
    html_ += "</div>\n";
    if (!examples.caption.empty())
      html_ += fmt::format("<figcaption>{}</figcaption>\n", escaped(examples.caption));
    html_ += "</figure>\n";
  }

  void write(const GalleryImage& image, uint32_t room = kImageSize) {
    const auto [width, height] = size_of(image);
    // By a whole number, so that pixels stay squares.
    const auto times = std::max(1u, room / std::max({width, height, 1u}));
    html_ += fmt::format(
        "<div class=\"image\">\n<img{} width=\"{}\" height=\"{}\" alt=\"{}\" "
        "src=\"data:image/png;base64,{}\"/>\n",
        times > 1 ? " class=\"pixels\"" : "", uint64_t{width} * times, uint64_t{height} * times,
        escaped(image.alt), base64(image.png));
    if (!image.alt.empty()) html_ += fmt::format("<p>{}</p>\n", escaped(image.alt));
    if (!image.answers.empty()) html_ += "<ul>\n";
    for (const auto& answer : image.answers) {
      html_ += fmt::format(
          "<li class=\"{0}\"><i aria-hidden=\"true\">{1}</i><b>{2}:</b> {3}<span class=\"unseen\"> "
          "({0})</span></li>\n",
          answer.correct ? "correct" : "wrong", answer.correct ? "✓" : "✗", escaped(answer.model),
          escaped(answer.predicted));
    }
    if (!image.answers.empty()) html_ += "</ul>\n";
    html_ += "</div>\n";
  }

  void write(const Code& code) {
    const auto* const box = code.folded ? "details" : "div";
    html_ += fmt::format("<{} class=\"code\">\n", box);
    if (code.folded) {
      html_ += fmt::format("<summary>{}</summary>\n", escaped(code.title.empty() ? "Details" : code.title));
    } else if (!code.title.empty()) {
      html_ += fmt::format("<p>{}</p>\n", escaped(code.title));
    }
    // HTML drops one line break behind <pre>.
    html_ += fmt::format("<pre tabindex=\"0\">\n{}</pre>\n</{}>\n", escaped(code.text), box);
  }

  std::string html_;
  std::set<std::string> ids_;
};

constexpr double kNarrow = 340;

template <typename Drawable>
Figure figure_of(std::string id, std::string caption, const Drawable& drawable) {
  return {.id = std::move(id),
          .caption = std::move(caption),
          .svg = to_svg(drawable),
          .csv = to_csv(drawable),
          .narrow = to_svg(drawable, kNarrow)};
}

}  // namespace

Figure to_figure(std::string id, std::string caption, const Plot& plot) {
  return figure_of(std::move(id), std::move(caption), plot);
}

Figure to_figure(std::string id, std::string caption, const HeatMap& map) {
  return figure_of(std::move(id), std::move(caption), map);
}

std::string to_html(const Page& page) { return Writer(page).html(); }

}  // namespace tpgm

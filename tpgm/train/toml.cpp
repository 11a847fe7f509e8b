// A reader of flat TOML. CLI11's, as of 2.1, loses '#', '"' and '\\' in strings and repeated keys.
#include "tpgm/train/toml.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"

namespace tpgm {
namespace {

std::string same_key(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

class TomlReader {
 public:
  explicit TomlReader(std::string_view text) : text_(text) {}

  std::vector<TomlItem> read() {
    std::vector<TomlItem> items;
    std::set<std::string> seen;
    for (skip_lines(); at_ < text_.size(); skip_lines()) {
      if (text_[at_] == '[') not_flat(text_.substr(at_ + 1, text_.find_first_of("]\n", at_) - at_ - 1));
      TomlItem item{std::string(word()), {}};
      if (const auto dot = item.key.find('.'); dot != std::string::npos)
        not_flat(std::string_view(item.key).substr(0, dot));
      check(!item.key.empty() && next() == '=', "expected key = value");
      check(seen.insert(same_key(item.key)).second,
            fmt::format("has '{}' twice", printable(same_key(item.key))));
      ++at_;
      if (next() == '[') {
        list(item.values);
      } else {
        item.values.push_back(value());
      }
      check(at_end_of_line(), "more than one value of '" + printable(item.key) + "'");
      items.push_back(std::move(item));
    }
    return items;
  }

 private:
  void check(bool good, const std::string& what) const {
    if (good) return;
    const auto line = std::count(text_.begin(), text_.begin() + offset(), '\n') + 1;
    throw Malformed{fmt::format("line {}: {}", line, what)};
  }
  [[noreturn]] void not_flat(std::string_view section) const {
    check(false, fmt::format("a recipe is flat; there are no sections such as [{}]", printable(section)));
    std::abort();  // check() has thrown
  }
  std::ptrdiff_t offset() const { return static_cast<std::ptrdiff_t>(std::min(at_, text_.size())); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\n'; }
  // The next character that is not blank; '\n' at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    return peek();
  }
  bool at_end_of_line() {
    if (next() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
    return peek() == '\n';
  }
  void skip_lines() {
    while (at_ < text_.size() && at_end_of_line()) ++at_;
  }
  std::string_view word() {
    const size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 ||
           std::string_view("_-+.").find(peek()) != std::string_view::npos)
      ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string value() {
    const char quote = next();
    if (quote != '"' && quote != '\'') {
      const auto text = word();
      check(!text.empty(), "expected a \"string\", a number, true, false or a list");
      return std::string(text);
    }
    std::string text;
    for (++at_; peek() != quote; ++at_) {
      check(peek() != '\n', "a string does not end");
      if (peek() == '\\' && quote == '"') {
        text += escaped();
      } else {
        text += peek();
      }
    }
    ++at_;
    return text;
  }
  std::string escaped() {
    ++at_;
    switch (peek()) {
      case 'b':
        return "\b";
      case 'f':
        return "\f";
      case 'n':
        return "\n";
      case 'r':
        return "\r";
      case 't':
        return "\t";
      case 'u':
        return character(4);
      case 'U':
        return character(8);
      default:
        check(peek() == '"' || peek() == '\\',
              "in a \"string\", \\ goes before \", \\, b, f, n, r, t, u or U");
        return std::string(1, peek());
    }
  }
  // A character by its number, of so many hexadecimal digits, in UTF-8. Leaves at_ at the last digit.
  std::string character(size_t digits) {
    const std::string_view text = text_.substr(std::min(at_ + 1, text_.size()), digits);
    uint32_t code = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    check(text.size() == digits && error == std::errc() && stop == text.data() + digits && code != 0 &&
              code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF),
          "\\u takes the 4 hexadecimal digits of a character, and \\U takes 8");
    at_ += digits;
    const auto tail = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) return {static_cast<char>(code)};
    if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
    if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
    return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
  }
  void list(std::vector<std::string>& values) {
    const auto more = [this] {  // over lines
      ++at_;
      skip_lines();
      check(at_ < text_.size(), "a list does not end");
      return peek() != ']';
    };
    while (more()) {
      values.push_back(value());
      skip_lines();
      check(peek() == ',' || peek() == ']', "expected , or ] in a list");
      if (peek() == ']') break;
    }
    ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<TomlItem> parse_toml(std::string_view text) { return TomlReader(text).read(); }

std::vector<TomlItem> read_toml(const std::filesystem::path& file) try {
  const std::string name = printable(file.string(), kMaxPath);
  TORCH_CHECK(std::filesystem::is_regular_file(file), "there is no recipe '", name,
              "'; 'tpgm list recipes' has those that came with this program");
  const auto text = read_text(file);
  TORCH_CHECK(text, "the recipe '", name, "' cannot be read; check its permissions");
  try {
    return parse_toml(*text);
  } catch (const Malformed& malformed) {
    TORCH_CHECK(false, "'", name, "', ", malformed.reason);
  }
} catch (...) {
  rethrow_from("read_toml");
}

std::string toml_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const size_t known = std::string_view("\"\\\n\r\t").find(c);
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {  // TOML allows none of them
      result += known == std::string_view::npos ? fmt::format("\\u{:04X}", static_cast<int>(c))
                                                : std::string{'\\', "\"\\nrt"[known]};
    } else if (known == std::string_view::npos) {
      result += c;
    } else {
      (result += '\\') += "\"\\nrt"[known];
    }
  }
  return result + '"';
}

}  // namespace tpgm

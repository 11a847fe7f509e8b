// Values as text, in recipes and flags: numbers, lists, sizes, globs and names; and text for people.
#include <cmath>

#include "tests/fuzz/support.h"
#include "tpgm/base/byte_count.h"
#include "tpgm/base/names.h"
#include "tpgm/base/shell.h"
#include "tpgm/base/text.h"

using namespace tpgm;

namespace {

// Text that is a value of the type is written as one with the same value.
template <typename T>
void read_as(const std::string& text) {
  T value{};
  try {
    from_text("option", text, value);
  } catch (const c10::Error&) {
    return;
  }
  T again{};
  from_text("option", to_text(value), again);
  fuzz::demand(to_text(again) == to_text(value), "a value that is written is the same");
}

}  // namespace

FUZZ(bytes) {
  const fuzz::MemoryLimit limit(bytes.size());
  const std::string text(bytes);
  read_as<int64_t>(text);
  read_as<double>(text);
  read_as<bool>(text);
  read_as<std::vector<double>>(text);
  read_as<std::optional<int64_t>>(text);
  ByteCount count;
  if (TextOf<ByteCount>::read(text, count)) fuzz::demand(count.bytes >= 0, "a size is not negative");

  // Two names; a glob is short.
  const size_t half = std::min(text.find('\n'), text.size());
  const std::string first = text.substr(0, std::min<size_t>(half, 256)), second = text.substr(half);
  fuzz::demand(!(natural_less(first, second) && natural_less(second, first)) && !natural_less(first, first),
               "an order has a direction");
  matches(first, second);
  did_you_mean(first, {second, "lr", "weight-decay"});
  fuzz::demand(first.starts_with(block_name(first)), "a block is a part of its name");
  for (const size_t most : {size_t{10}, text.size()}) {
    const auto shown = printable(text, most);
    fuzz::demand(shown.size() <= most + 3 && printable(shown, shown.size()) == shown,
                 "what is printed can be printed");
  }
}

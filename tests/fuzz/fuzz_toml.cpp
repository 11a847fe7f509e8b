// A recipe.
#include "tests/fuzz/support.h"
#include "tpgm/train/toml.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    std::string again;
    const auto items = parse_toml(bytes);
    for (const auto& [key, values] : items) {
      fuzz::demand(!key.empty(), "an item has a key");
      again += key + " = [";
      for (const auto& value : values) again += toml_quoted(value) + ",";
      again += "]\n";
    }
    const auto read = parse_toml(again);
    fuzz::demand(read.size() == items.size(), "what is written has the same items");
    for (size_t i = 0; i < items.size(); ++i) {
      fuzz::demand(read[i].key == items[i].key && read[i].values == items[i].values,
                   "what is written is read as it was");
    }
  });
}

// A value of a checkpoint's metadata: the text is read as that of each key.
#include <c10/util/Exception.h>

#include "tests/fuzz/support.h"
#include "tpgm/io/metadata.h"

using namespace tpgm;

namespace {

template <typename Key>
void read_as(const Key& key, std::string_view bytes) {
  const fuzz::MemoryLimit limit(bytes.size());
  const Metadata metadata{{std::string(key.name), std::string(bytes)}};
  try {
    const auto value = key.of(metadata);
    Metadata again;
    key.set(again, value);
    fuzz::demand(key.of(again) == value, "a value that is written is the same");
  } catch (const c10::Error&) {  // the readers of metadata have no other error
  }
}

}  // namespace

FUZZ(bytes) {
  read_as(keys::kModel, bytes);
  read_as(keys::kNormalize, bytes);
  read_as(keys::kClasses, bytes);
  read_as(keys::kView, bytes);
  read_as(keys::kRatio, bytes);
}

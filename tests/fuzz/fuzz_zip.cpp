// A zip archive: its directory, then every record as it lies and as text.
#include "tests/fuzz/support.h"
#include "tpgm/io/zip.h"

using namespace tpgm;

FUZZ(bytes) {
  constexpr size_t kLimit = size_t{1} << 20;
  fuzz::parse_or_refuse(bytes.size(), [&] {
    MemoryBudget budget(bytes.size());
    const ZipArchive archive(bytes, budget);
    for (const auto& [name, record] : archive.records()) {
      try {  // one bad record is no reason to pass over the others
        const auto text = archive.text(name, kLimit);
        fuzz::demand(text.size() == record.inflated && text.size() <= kLimit, "a text has its size");
        const auto stored = archive.stored(name);
        fuzz::demand(stored.data() >= bytes.data() && stored.data() <= bytes.data() + bytes.size() &&
                         stored.size() <= static_cast<size_t>(bytes.data() + bytes.size() - stored.data()),
                     "a record lies within its file");
        fuzz::demand(stored == text, "a stored record is its text");
      } catch (const Malformed&) {
      }
    }
  });
}

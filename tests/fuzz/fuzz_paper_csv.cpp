// The table of a paper.
#include "tests/fuzz/support.h"
#include "tpgm/study/paper_csv.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const auto table = parse_paper_csv(bytes);
    fuzz::demand(!table.rows.empty(), "a table has rows");
    for (const auto& row : table.rows) {
      fuzz::demand(row.numbers.size() == table.tests.size(), "a row has a cell for each test");
      fuzz::demand(!row.label.empty() && row.variant.starts_with(row.recipe),
                   "a row has a label and a recipe");
      for (const auto& [key, value] : row.settings)
        fuzz::demand(!key.empty() && key.find('_') == std::string::npos, "a setting has a key");
    }
  });
}

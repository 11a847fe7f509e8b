// Lists of classes, their names, and templates: the text is read as each of them.
#include <set>

#include "tests/fuzz/support.h"
#include "tpgm/data/class_list.h"
#include "tpgm/text/class_names.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const auto classes = parse_class_list(bytes);
    fuzz::demand(
        std::set(classes.begin(), classes.end()).size() == classes.size() && !classes.front().empty(),
        "classes differ");
  });
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const auto names = parse_class_names(bytes);
    fuzz::demand(!names.empty(), "there is a name");
    for (const auto& name : names) fuzz::demand(!name.empty(), "no name is empty");
  });
  fuzz::parse_or_refuse(bytes.size(), [&] {
    for (const auto& sentence : parse_templates(bytes))
      fuzz::demand(sentence.find(kPlaceholder) != std::string::npos, "a template has a place for a name");
  });
}

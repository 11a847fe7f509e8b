// The tables of names.cpp: what each library calls the tensors, name by name.
#pragma once

#include <string_view>
#include <vector>

#include "tpgm/weights/names.h"

namespace tpgm {

/// How their tensor differs from ours.
enum class Form {
  kSame,
  kTransposed,  // a projection that is multiplied from the right
  kRow,         // [1, ...] before our shape
  kToken,       // [1, 1, ...] before our shape
  kStacked,     // theirs are three, with q, k and v for the '?'
};

/// A '*' stands for text without dots, the same on both sides.
struct Rule {
  std::string_view ours, theirs;
  Form form = Form::kSame;
};

/// Two rules for one of our names are two ages of a layout; what we write is the first.
using Rules = std::vector<Rule>;

struct LayoutTable {
  Layout layout;
  const Family* family;
  std::string_view signature;  // a name that no table after this one has
  std::vector<const Rules*> rules;
  std::string_view missing = "";  // what newer files leave out before all names
};
/// Those of other libraries, in the order in which to try them.
const std::vector<LayoutTable>& layout_tables();

/// What checkpoints hold beside the model.
struct Leftover {
  std::string_view glob, what;
};
const std::vector<Leftover>& leftovers();

}  // namespace tpgm

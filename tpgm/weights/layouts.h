// The table of layouts: what each library calls the tensors of our models, and the files that describe a model
// and its images.
#pragma once

#include <string_view>
#include <vector>

#include "tpgm/weights/names.h"

namespace tpgm {

struct Preprocessing;

/// How a tensor of the other library differs from ours.
enum class Form {
  kSame,
  kTransposed,  ///< the matrix of a projection x · W, where ours is x · Wᵀ
  kRow,         ///< [1, ...]: one dimension before our shape
  kToken,       ///< [1, 1, ...]: two dimensions before our shape
  kStacked,     ///< three tensors, with q, k and v for the '?'
};

/// One name in both libraries. A '*' stands for text without dots, the same on both sides.
struct Rule {
  std::string_view ours, theirs;
  Form form = Form::kSame;
};

/// If two rules have the same name of ours, both of theirs are read, and the first is written.
using Rules = std::vector<Rule>;

/// A file beside the weights that describes the model (config_json.h).
struct ConfigFile {
  std::string_view name = "";  ///< "config.json"; empty: the layout has no such file
  bool (*read)(std::string_view text, ModelConfig& config) = nullptr;
};

struct LayoutTable {
  Layout layout;
  const Family* family;
  std::string_view signature;  ///< a name that the models of no later row have
  std::vector<const Rules*> rules;
  std::string_view missing = "";  ///< a prefix of all names that newer files leave out
  ConfigFile config = {};
};
/// The layouts of other libraries, in the order in which they are tried. For a family the config files are
/// looked for in the same order.
const std::vector<LayoutTable>& layout_tables();

/// A file beside the weights that says how images are preprocessed (preprocessing.h).
struct PreprocessingFile {
  std::string_view name;
  Layout layout;  ///< of the library that writes it
  bool (*read)(std::string_view text, Preprocessing& into);
};
/// In the order in which they are tried, after those of the checkpoint's own layout.
const std::vector<PreprocessingFile>& preprocessing_files();

/// Tensors in checkpoints that are not part of a model.
struct Leftover {
  std::string_view glob, what;
};
const std::vector<Leftover>& leftovers();

}  // namespace tpgm

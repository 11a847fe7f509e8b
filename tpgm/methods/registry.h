// All methods by name, with their options, defaults and help as text. Flags and recipes are built from this.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tpgm/core/module_view.h"
#include "tpgm/methods/method.h"
#include "tpgm/methods/options.h"

namespace tpgm {

struct OptionInfo {
  std::string name;           ///< As in recipes: radius_lr.
  std::string type;           ///< float, int, bool, globs (a comma-separated list), or keywords: "half|eps".
  std::string default_value;  ///< As make_method() would take it.
  std::string help;
  bool by_loop = false;  ///< Set by the training loop, not by its user; see SetBy.
  /// Throws if `text` is not a value of the option's type: "`every` must be an integer from 1, or 'end', not
  /// 'x'", where `name` is what the message calls the option. May be null: then make_method() checks it.
  std::function<void(const std::string& name, const std::string& text)> check = nullptr;
};

/// The part of a method in comparisons.
enum class MethodRole {
  kOther,
  kBaseline,       ///< plain fine-tuning, which the others are compared with
  kInterpolation,  ///< WISE: a curve of rows along its option `ratio`
  kTpgm,           ///< ours; TPGM-C with its option `mu`
};

struct MethodInfo {
  std::string name;
  std::string title;  ///< In tables: "L2-SP".
  std::string summary;
  std::string reference;  ///< The paper, or empty.
  MethodRole role = MethodRole::kOther;
  bool trains_all = true;     ///< Method::kTrainsAll: false if some of its steps are cheaper.
  bool head_only = false;     ///< Method::kHeadOnly: the head alone trains, so `lr` is its learning rate.
  bool probes_first = false;  ///< True if it has phases (HasPhases), of which the first is linear probing.
  std::vector<OptionInfo> options;
  /// The radius updates with the given options (by name, as for make_method()); null if the method has no
  /// radii that it learns on held-out data.
  std::function<RadiusUpdates(const std::map<std::string, std::string>&)> radius_updates;

  /// The option of this name; null if there is none.
  const OptionInfo* find(const std::string& option) const;
};

/// All methods, in the order in which tables show them.
const std::vector<MethodInfo>& methods();
/// The method of this name; null if there is none.
const MethodInfo* find_method(const std::string& name);

/// Builds a method on `model`, with `anchor` as its pre-trained weights (methods without one ignore it).
/// Throws if the method or an option is unknown, naming the nearest, or a value is not of its option's type.
std::unique_ptr<Method> make_method(const std::string& name, const ModuleView& model,
                                    const NamedTensors& anchor,
                                    const std::map<std::string, std::string>& options = {});

}  // namespace tpgm

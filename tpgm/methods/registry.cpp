#include "tpgm/methods/registry.h"

#include <c10/util/Exception.h>

#include <functional>
#include <type_traits>

#include "tpgm/methods/ft.h"
#include "tpgm/methods/ftp.h"
#include "tpgm/methods/l2_sp.h"
#include "tpgm/methods/lp_ft.h"
#include "tpgm/methods/mars_sp.h"
#include "tpgm/methods/options.h"
#include "tpgm/methods/spd.h"
#include "tpgm/methods/subset.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/methods/wise.h"

namespace tpgm {
namespace {

using Texts = std::map<std::string, std::string>;

struct Entry {
  MethodInfo info;
  std::function<std::unique_ptr<Method>(const ModuleView&, const NamedTensors&, const Texts&)> make;
};

template <class M>
Entry entry(const std::string& name, const std::string& summary) {
  using Options = typename M::Options;
  Entry result{{name, summary, {}}, {}};
  Options defaults;
  Options::fields(defaults, [&](const char* option, const auto& value, const char* help) {
    using T = std::decay_t<decltype(value)>;
    result.info.options.push_back({option, type_name<T>(), to_text(value), help});
  });
  result.make = [name](const ModuleView& model, const NamedTensors& anchor, const Texts& texts) {
    Options options;
    Options::fields(options, [&](const char* option, auto& value, const char*) {
      if (const auto text = texts.find(option); text != texts.end())
        from_text("[" + name + "] " + option, text->second, value);
    });
    if constexpr (std::is_constructible_v<M, const ModuleView&, const NamedTensors&, Options>)
      return std::make_unique<M>(model, anchor, options);
    else
      return std::make_unique<M>(model, options);
  };
  return result;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      entry<Ft>("ft", "plain fine-tuning of all layers"),
      entry<Lp>("lp", "only the head trains"),
      entry<Pf>("pf", "BatchNorm's weights and biases and the head train"),
      entry<BitFit>("bitfit", "biases and the head train"),
      entry<L2Sp>("l2-sp", "a penalty on the squared distance from the anchor"),
      entry<MarsSp>("mars-sp", "one fixed radius for every tensor"),
      entry<LpFt>("lp-ft", "the head first, then all layers"),
      entry<Wise>("wise", "one ratio between the pre-trained and the fine-tuned model"),
      entry<Tpgm>("tpgm", "radii per tensor, learned on held-out data"),
      entry<Ftp>("ftp", "radii per tensor, learned from the training gradient"),
      entry<Spd>("spd", "decay towards the anchor where the gradient asks for it"),
  };
  return all;
}

}  // namespace

const std::vector<MethodInfo>& methods() {
  static const auto all = [] {
    std::vector<MethodInfo> result;
    for (const auto& each : entries()) result.push_back(each.info);
    return result;
  }();
  return all;
}

std::unique_ptr<Method> make_method(const std::string& name, const ModuleView& model,
                                    const NamedTensors& anchor, const Texts& options) {
  std::vector<std::string> names;
  for (const auto& each : entries()) {
    if (each.info.name != name) {
      names.push_back(each.info.name);
      continue;
    }
    std::vector<std::string> known;
    for (const auto& option : each.info.options) known.push_back(option.name);
    for (const auto& [option, text] : options) {
      const auto hint = nearest(option, known);
      TORCH_CHECK(hint == option, "[", name, "] has no option '", option, "'",
                  known.empty() ? "; it has none" : "; did you mean '" + hint + "'?");
    }
    return each.make(model, anchor, options);
  }
  TORCH_CHECK(false, "[make_method] no method '", name, "'; did you mean '", nearest(name, names), "'?");
}

}  // namespace tpgm

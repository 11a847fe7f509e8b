#include "tpgm/methods/registry.h"

#include <c10/util/Exception.h>

#include <functional>
#include <type_traits>

#include "tpgm/methods/anchored_method.h"
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

template <class Options>
Options parse_options(const std::string& method, const Texts& texts) {
  Options options;
  Options::fields(options, [&](const char* option, auto& value, const char*, SetBy = SetBy::kUser) {
    if (const auto text = texts.find(option); text != texts.end())
      from_text("[" + method + "] " + option, text->second, value);
  });
  return options;
}

template <class M>
Entry entry(const std::string& name, const std::string& title, const std::string& summary,
            const std::string& reference, MethodRole role = MethodRole::kOther) {
  using Options = typename M::Options;
  constexpr bool probes_first = std::is_base_of_v<HasPhases, M>;
  Entry result{
      {name, title, summary, reference, role, M::kTrainsAll, M::kHeadOnly, probes_first, {}, nullptr}, {}};
  if constexpr (requires(const Options& options) { options.radius_updates(); }) {
    result.info.radius_updates = [name](const Texts& texts) {
      return parse_options<Options>(name, texts).radius_updates();
    };
  }
  Options defaults;
  Options::fields(defaults,
                  [&](const char* option, const auto& value, const char* help, SetBy set_by = SetBy::kUser) {
                    using T = std::decay_t<decltype(value)>;
                    const auto check = [value](const std::string& called, const std::string& text) {
                      T parsed = value;
                      from_text(called, text, parsed);
                    };
                    result.info.options.push_back(
                        {option, type_name<T>(), to_text(value), help, set_by == SetBy::kLoop, check});
                  });
  result.make = [name](const ModuleView& model, const NamedTensors& anchor, const Texts& texts) {
    const auto options = parse_options<Options>(name, texts);
    constexpr bool takes_anchor = std::is_constructible_v<M, const ModuleView&, const NamedTensors&, Options>;
    static_assert(takes_anchor || !std::is_base_of_v<AnchoredMethod, M>,
                  "needs a constructor with an anchor");
    if constexpr (takes_anchor)
      return std::make_unique<M>(model, anchor, options);
    else
      return std::make_unique<M>(model, options);
  };
  return result;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      entry<Ft>("ft", "FT", "plain fine-tuning of all layers", "", MethodRole::kBaseline),
      entry<Lp>("lp", "LP", "only the head trains", ""),
      entry<Pf>("pf", "PF", "BatchNorm's weights and biases and the head train",
                "Kanavati, Tsuneki. Partial Transfusion. MIDL 2021."),
      entry<BitFit>("bitfit", "BitFit", "biases and the head train",
                    "Zaken, Ravfogel, Goldberg. BitFit. ACL 2022."),
      entry<L2Sp>("l2-sp", "L2-SP", "a penalty on the squared distance from the anchor",
                  "Li, Grandvalet, Davoine. Explicit Inductive Bias for Transfer Learning with Convolutional "
                  "Networks. ICML 2018."),
      entry<MarsSp>("mars-sp", "MARS-SP", "one fixed radius for every tensor",
                    "Gouk, Hospedales, Pontil. Distance-Based Regularisation of Deep Networks for "
                    "Fine-Tuning. ICLR 2021."),
      entry<LpFt>("lp-ft", "LP-FT", "the head first, then all layers",
                  "Kumar, Raghunathan, Jones, Ma, Liang. Fine-Tuning can Distort Pretrained Features and "
                  "Underperform Out-of-Distribution. ICLR 2022."),
      entry<Wise>("wise", "WISE", "one ratio between the pre-trained and the fine-tuned model",
                  "Wortsman et al. Robust Fine-Tuning of Zero-Shot Models. CVPR 2022.",
                  MethodRole::kInterpolation),
      entry<Tpgm>("tpgm", "TPGM", "radii per tensor, learned on held-out data",
                  "Tian, Dai, Ma, He, Liu, Kira. Trainable Projected Gradient Method for Robust Fine-tuning. "
                  "CVPR 2023.",
                  MethodRole::kTpgm),
      entry<Ftp>("ftp", "FTP", "radii per tensor, learned from the training gradient",
                 "Tian, Liu, Smith, Kira. Fast Trainable Projection for Robust Fine-tuning. NeurIPS 2023."),
      entry<Spd>("spd", "SPD", "decay towards the anchor where the gradient asks for it",
                 "Tian, Huang, Kira. Rethinking Weight Decay for Robust Fine-Tuning of Foundation Models. "
                 "NeurIPS 2024."),
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

const MethodInfo* find_method(const std::string& name) {
  for (const auto& method : methods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

const OptionInfo* MethodInfo::find(const std::string& option) const {
  for (const auto& each : options) {
    if (each.name == option) return &each;
  }
  return nullptr;
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
      TORCH_CHECK(std::find(known.begin(), known.end(), option) != known.end(), "[", name,
                  "] has no option '", option, "'",
                  known.empty() ? "; it has none" : did_you_mean(option, known));
    }
    return each.make(model, anchor, options);
  }
  TORCH_CHECK(false, "[make_method] no method '", name, "'", did_you_mean(name, names));
}

}  // namespace tpgm

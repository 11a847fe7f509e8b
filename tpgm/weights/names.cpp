// Recognizes layouts by the names of tensors, and renames tensors to ours and back.
#include "tpgm/weights/names.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/models/families.h"
#include "tpgm/weights/layouts.h"

namespace tpgm {
namespace {

// The prefixes of the encoder that is meant, if a file has two that were trained side by side.
constexpr std::array<std::string_view, 3> kPreferred{"base_encoder.", "student.", "encoder_q."};

const LayoutTable* find_table(Layout layout, const Family& family) {
  static const LayoutTable kOwn{Layout::kTpgm, nullptr, "", {}};  // there is nothing to rename
  if (layout == Layout::kTpgm && *family.recognition) return &kOwn;
  for (const auto& table : layout_tables()) {
    if (table.layout == layout && table.family == &family) return &table;
  }
  return nullptr;
}

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// What each '*' of the pattern stands for in the name, if it matches.
std::optional<std::vector<std::string>> match(std::string_view pattern, std::string_view name) {
  const auto patterns = parts_of(pattern), parts = parts_of(name);
  if (patterns.size() != parts.size()) return std::nullopt;
  std::vector<std::string> texts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t star = patterns[i].find('*');
    if (star == std::string_view::npos) {
      if (patterns[i] != parts[i]) return std::nullopt;
      continue;
    }
    const auto before = patterns[i].substr(0, star), after = patterns[i].substr(star + 1);
    if (parts[i].size() <= before.size() + after.size() || !parts[i].starts_with(before) ||
        !parts[i].ends_with(after)) {
      return std::nullopt;
    }
    texts.emplace_back(parts[i].substr(star, parts[i].size() - before.size() - after.size()));
  }
  return texts;
}

std::string substitute(std::string_view pattern, const std::vector<std::string>& texts) {
  std::string name;
  size_t used = 0;
  for (const char letter : pattern) letter == '*' ? name += texts.at(used++) : name += letter;
  return name;
}

// Their patterns: one, or those of q, k and v.
std::vector<std::string> patterns_of(const Rule& rule) {
  if (rule.form != Form::kStacked) return {std::string(rule.theirs)};
  std::vector<std::string> patterns;
  for (const char letter : {'q', 'k', 'v'}) {
    std::string pattern(rule.theirs);
    pattern[pattern.find('?')] = letter;
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

at::Tensor ours_from(const at::Tensor& theirs, Form form, const std::string& name) {
  const int64_t extra = form == Form::kRow ? 1 : form == Form::kToken ? 2 : 0;
  const bool fits = theirs.dim() > extra &&
                    theirs.sizes().slice(0, extra).equals(at::IntArrayRef{1, 1}.slice(0, extra)) &&
                    (form != Form::kTransposed || theirs.dim() == 2);
  TORCH_CHECK(fits || extra == 0, "[to_ours] '", printable(name), "' is ", theirs.sizes(), ", expected ",
              extra, " dimensions of 1 before others");
  TORCH_CHECK(fits || form != Form::kTransposed, "[to_ours] '", printable(name), "' is ", theirs.sizes(),
              ", expected a matrix");
  if (form == Form::kTransposed) return theirs.t();
  return extra == 0 ? theirs : theirs.flatten(0, extra).view(theirs.sizes().slice(extra));
}

at::Tensor theirs_from(const at::Tensor& ours, Form form) {
  if (form == Form::kTransposed) return ours.t().contiguous();
  if (form == Form::kRow) return ours.unsqueeze(0);
  return form == Form::kToken ? ours.unsqueeze(0).unsqueeze(0) : ours;
}

struct Match {
  const Rule* rule = nullptr;
  std::vector<std::string> texts;
  size_t part = 0;  // which of q, k, v
};

std::optional<Match> match_theirs(const LayoutTable& table, const std::string& name) {
  for (const auto* rules : table.rules) {
    for (const auto& rule : *rules) {
      const auto patterns = patterns_of(rule);
      for (size_t part = 0; part < patterns.size(); ++part) {
        if (auto texts = match(patterns[part], name)) return Match{&rule, std::move(*texts), part};
      }
    }
  }
  return std::nullopt;
}

std::optional<Match> match_ours(const LayoutTable& table, const std::string& name) {
  for (const auto* rules : table.rules) {
    for (const auto& rule : *rules) {
      if (auto texts = match(rule.ours, name)) return Match{&rule, std::move(*texts)};
    }
  }
  return std::nullopt;
}

const Leftover* leftover(const std::string& name) {
  for (const auto& each : leftovers()) {
    if (matches(std::string(each.glob), name)) return &each;
  }
  return nullptr;
}

// What our classifiers have beside their backbone.
bool beside_backbone(const std::string& name) {
  return name.starts_with("head.") || name.starts_with("text.") || name == "logit_scale";
}

// Families with the tensor that shows each, the longest name first: "visual.stem.conv1.weight" ends as
// "stem.conv1.weight" does.
std::vector<std::pair<const Family*, std::string>> own_signatures() {
  std::vector<std::pair<const Family*, std::string>> found;
  for (const Family& family : families()) {
    if (const auto& recognition = *family.recognition)
      found.emplace_back(&family, family.image_prefix() + recognition->signature);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return found;
}

// What comes before the signature, if it is among the names; of several the best.
std::optional<std::string> prefix_of(std::string_view signature, const std::vector<std::string>& names) {
  std::vector<std::string> prefixes;
  for (const auto& name : names) {
    if (!name.ends_with(signature)) continue;
    const std::string prefix = name.substr(0, name.size() - signature.size());
    if (prefix.empty() || prefix.ends_with('.')) prefixes.push_back(prefix);
  }
  if (prefixes.empty()) return std::nullopt;
  const auto preference = [](const std::string& prefix) {
    size_t place = 0;
    while (place < kPreferred.size() && !prefix.ends_with(kPreferred[place])) ++place;
    return std::pair(prefix.empty() ? 0 : place + 1, prefix);
  };
  return *std::min_element(prefixes.begin(), prefixes.end(),
                           [&](const auto& a, const auto& b) { return preference(a) < preference(b); });
}

std::string top_of(const std::string& name) { return name.substr(0, name.find('.')); }

}  // namespace

Layout parse_layout(const std::string& text) {
  Layout layout{};
  TORCH_CHECK(read_value(text, layout), "[parse_layout] no layout '", text, "'; known are ",
              type_name<Layout>());
  return layout;
}

std::vector<Layout> layouts_of(const Family& family) {
  std::vector<Layout> layouts;
  if (*family.recognition) layouts.push_back(Layout::kTpgm);
  for (const auto& table : layout_tables()) {
    const bool fresh = std::find(layouts.begin(), layouts.end(), table.layout) == layouts.end();
    if (table.family == &family && fresh) layouts.push_back(table.layout);
  }
  return layouts;
}

std::optional<Recognised> recognise(const std::vector<std::string>& names) {
  for (const auto& [family, signature] : own_signatures()) {
    if (const auto prefix = prefix_of(signature, names))
      return Recognised{Layout::kTpgm, family, *prefix, ""};
  }
  for (const auto& table : layout_tables()) {
    if (const auto prefix = prefix_of(table.signature, names))
      return Recognised{table.layout, table.family, *prefix, std::string(table.missing)};
  }
  return std::nullopt;
}

Renamed to_ours(const NamedTensors& tensors, const Recognised& recognised) {
  const LayoutTable* table = find_table(recognised.layout, *recognised.family);
  TORCH_CHECK(table != nullptr, "[to_ours] a ", recognised.family->name, " has no layout ",
              to_text(recognised.layout));
  const bool ours = recognised.layout == Layout::kTpgm;
  Renamed result;
  std::map<std::string, std::pair<std::string_view, size_t>> dropped;  // glob → why, how many
  std::map<std::string, std::array<at::Tensor, 3>> stacks;
  std::vector<std::string> stack_order;
  const auto insert = [&](const std::string& our_name, const at::Tensor& tensor, const std::string& theirs) {
    TORCH_CHECK(!result.tensors.contains(our_name), "[to_ours] '", printable(theirs), "' is our '",
                printable(our_name), "', and so is another; remove one of them");
    result.tensors.insert(our_name, tensor);
  };
  for (const auto& item : tensors) {
    std::string name = item.key();
    if (name.starts_with(recognised.prefix)) {
      name.erase(0, recognised.prefix.size());
    } else if (!(ours && beside_backbone(name))) {
      auto& count = dropped[top_of(name) + ".*"];
      count = {"beside the model", count.second + 1};
      continue;
    }
    const bool open_clip_text = recognised.layout == Layout::kOpenAi && name.starts_with("text.");
    if (open_clip_text) name.erase(0, 5);  // newer configurations of open_clip have it
    name.insert(0, recognised.missing);
    if (ours && !leftover(name)) {
      insert(name, item.value(), item.key());
    } else if (const auto found = match_theirs(*table, name)) {
      const std::string our_name = substitute(found->rule->ours, found->texts);
      if (found->rule->form == Form::kStacked) {
        if (!stacks.contains(our_name)) stack_order.push_back(our_name);
        stacks[our_name][found->part] = item.value();
      } else {
        insert(our_name, ours_from(item.value(), found->rule->form, item.key()), item.key());
      }
    } else if (const auto* left = leftover(name)) {
      auto& count = dropped[name.find('.') == std::string::npos ? name : std::string(left->glob)];
      count = {left->what, count.second + 1};
    } else {
      result.unknown.push_back(item.key());
    }
  }
  for (const auto& name : stack_order) {
    const auto& parts = stacks[name];
    for (size_t i = 0; i < parts.size(); ++i) {
      TORCH_CHECK(parts[i].defined() && parts[i].dim() > 0 && parts[i].sizes() == parts[0].sizes(),
                  "[to_ours] of q, k and v of '", printable(name), "' the ",
                  std::array{"first", "second", "third"}[i], " is missing or of another shape");
    }
    result.tensors.insert(name, at::cat(parts));
  }
  for (const auto& [glob, why] : dropped) {
    result.notes.push_back(fmt::format("left out {} of '{}': {}", why.second, printable(glob), why.first));
  }
  return result;
}

Renamed from_ours(const NamedTensors& tensors, const ModelConfig& config, Layout layout) {
  const Family& family = *config.family;
  const LayoutTable* table = find_table(layout, family);
  if (table == nullptr) {
    std::vector<std::string> known;
    for (const auto each : layouts_of(family)) known.push_back(to_text(each));
    TORCH_CHECK(false, "[from_ours] a ", family.name, " has no layout ", to_text(layout), "; it has ",
                fmt::format("{}", fmt::join(known, ", ")));
  }
  TORCH_CHECK(
      layout != Layout::kTorchvision ||
          (config.pool != Pool::kMean && config.patch_bias != false && config.pre_norm != true),
      "[from_ours] torchvision's ViT has the class token for a pool, a bias of the patches and no norm "
      "before the blocks, and this one does not; write it as timm");
  Renamed result;
  for (const auto& item : tensors) {
    if (layout == Layout::kTpgm) {
      result.tensors.insert(item.key(), item.value());
      continue;
    }
    const auto found = match_ours(*table, item.key());
    if (!found && item.key().starts_with("head.")) {
      result.notes.push_back(
          fmt::format("left out '{}': {} has no classification head", item.key(), to_text(layout)));
      continue;
    }
    if (!found) {
      result.unknown.push_back(item.key());
      continue;
    }
    const auto patterns = patterns_of(*found->rule);
    const auto parts = patterns.size() == 1 ? std::vector{item.value()} : item.value().chunk(3);
    for (size_t i = 0; i < patterns.size(); ++i) {
      std::string name = substitute(patterns[i], found->texts);
      if (layout == Layout::kTimm && config.pool == Pool::kMean && name.starts_with("norm."))
        name.insert(0, "fc_");
      result.tensors.insert(name, theirs_from(parts[i], found->rule->form));
    }
  }
  return result;
}

}  // namespace tpgm

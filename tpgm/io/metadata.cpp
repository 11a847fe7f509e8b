// Metadata values to text and back.
#include "tpgm/io/metadata.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tpgm/base/numbers.h"

namespace tpgm {
namespace {

using Json = nlohmann::json;

constexpr std::tuple kAll{keys::kFormat,    keys::kModel,   keys::kHeadName,  keys::kLayout,   keys::kLayer,
                          keys::kNormalize, keys::kClasses, keys::kTemplates, keys::kView,     keys::kVersion,
                          keys::kCommand,   keys::kInputs,  keys::kRatio,     keys::kFinished, keys::kState};

// Our values are a list, or an object with lists. What is nested deeper, which would take eighty times its text in
// memory, is not JSON for us.
Json parse(const std::string& text) {
  constexpr int kDeepest = 1;
  struct TooDeep {};
  const auto check = [](int depth, Json::parse_event_t event, const Json&) {
    const bool begins =
        event == Json::parse_event_t::array_start || event == Json::parse_event_t::object_start;
    if (begins && depth > kDeepest) throw TooDeep();
    return true;
  };
  try {
    return Json::parse(text, check, /*allow_exceptions=*/false);
  } catch (const TooDeep&) {
    return Json(Json::value_t::discarded);
  }
}

// The value of a text. The second argument selects the type; no value if the text is not of the type.
std::optional<std::string> value_of(const std::string& text, const std::string*) { return text; }

// `false` is written as no key at all.
std::optional<bool> value_of(const std::string& text, const bool*) {
  return text == "true" ? std::optional(true) : std::nullopt;
}

std::optional<double> value_of(const std::string& text, const double*) { return parse_number<double>(text); }

std::optional<std::vector<std::string>> value_of(const std::string& text, const std::vector<std::string>*) {
  const Json json = parse(text);
  if (!json.is_array()) return std::nullopt;
  std::vector<std::string> result;
  for (const auto& each : json) {
    if (!each.is_string()) return std::nullopt;
    result.push_back(each);
  }
  return result;
}

std::optional<ImageView> value_of(const std::string& text, const ImageView*) {
  const Json json = parse(text);
  if (!json.is_object()) return ImageView{};
  ImageView view;
  try {
    if (json.contains("mean")) json["mean"].get_to(view.mean);
    if (json.contains("std")) json["std"].get_to(view.std);
    if (json.contains("crop_pct")) view.crop_pct = json["crop_pct"].get<double>();
    if (json.contains("interpolation")) view.interpolation = json["interpolation"].get<std::string>();
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return view;
}

constexpr const char* what_is_expected(const std::string*) { return "text"; }
constexpr const char* what_is_expected(const bool*) { return "\"true\""; }
constexpr const char* what_is_expected(const double*) { return "a number"; }
constexpr const char* what_is_expected(const std::vector<std::string>*) { return "a list of texts"; }
constexpr const char* what_is_expected(const ImageView*) {
  return "the mean, std, crop_pct and interpolation of images";
}

std::string text_of(const std::string& value) { return value; }
std::string text_of(bool) { return "true"; }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::vector<std::string>& value) {
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string text_of(const ImageView& view) {
  Json json = Json::object();
  if (!view.mean.empty()) json["mean"] = view.mean;
  if (!view.std.empty()) json["std"] = view.std;
  if (view.crop_pct) json["crop_pct"] = *view.crop_pct;
  if (view.interpolation) json["interpolation"] = *view.interpolation;
  return json.dump();
}

}  // namespace

std::string complaint(const ImageView& view) {
  for (const auto& [key, values] : {std::pair{"mean", &view.mean}, {"std", &view.std}}) {
    const size_t count = values->size();
    if (count == 2 || count > 3) return fmt::format("{} has {} numbers, instead of 1 or 3", key, count);
    for (const double value : *values) {
      if (!std::isfinite(static_cast<float>(value))) return fmt::format("{} has the value {}", key, value);
    }
  }
  for (const double std : view.std) {
    if (static_cast<float>(std) <= 0) return fmt::format("std is {}, instead of above 0", std);
  }
  constexpr double kLeast = 0.01;
  const double share = view.crop_pct.value_or(1);
  if (!(share >= kLeast && std::isfinite(share)))
    return fmt::format("crop_pct is {}, instead of {} or more", share, kLeast);
  return "";
}

template <typename T>
T MetadataKey<T>::of(const Metadata& metadata) const {
  const auto found = metadata.find(std::string(name));
  if (found == metadata.end()) return {};
  constexpr const T* kType = nullptr;
  auto value = value_of(found->second, kType);
  TORCH_CHECK(value.has_value(), "[MetadataKey] '", name, "' in a checkpoint's metadata is not ",
              what_is_expected(kType), "; save it again");
  if constexpr (std::is_same_v<T, ImageView>) {
    const auto why = complaint(*value);
    TORCH_CHECK(why.empty(), "[MetadataKey] '", name, "' in a checkpoint's metadata: ", why,
                "; save it again");
  }
  return *std::move(value);
}

template <typename T>
T MetadataKey<T>::at(const Metadata& metadata) const {
  TORCH_CHECK(in(metadata), "[MetadataKey] there is no '", name, "' in a checkpoint's metadata");
  return of(metadata);
}

template <typename T>
void MetadataKey<T>::set(Metadata& metadata, const T& value) const {
  if constexpr (std::is_same_v<T, bool>) {
    if (!value) {
      metadata.erase(std::string(name));
      return;
    }
  }
  metadata[std::string(name)] = text_of(value);
}

template <typename T>
void MetadataKey<T>::copy(const Metadata& from, Metadata& to) const {
  if (const auto found = from.find(std::string(name)); found != from.end()) to[found->first] = found->second;
}

template struct MetadataKey<std::string>;
template struct MetadataKey<bool>;
template struct MetadataKey<double>;
template struct MetadataKey<std::vector<std::string>>;
template struct MetadataKey<ImageView>;

bool is_inherited(std::string_view key) {
  if (!key.starts_with("tpgm.")) return true;
  return std::apply([&](auto... each) { return ((each.inherited && each.name == key) || ...); }, kAll);
}

}  // namespace tpgm

#include "tpgm/weights/json_members.h"

#include <fmt/format.h>

#include "tpgm/base/untrusted.h"

namespace tpgm::json_members {
namespace {

// Real files have a few kB. The parsed JSON takes up to eighty times the bytes of its text.
constexpr size_t kMaxConfigBytes = 1 << 19;

}  // namespace

Json parse(std::string_view text, const char* way_out) {
  if (text.size() > kMaxConfigBytes)
    throw Malformed{fmt::format("it has {} bytes, and a config at most {}", text.size(), kMaxConfigBytes),
                    way_out};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Malformed{"it is not a JSON object", way_out};
  return json;
}

const Json* find_member(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

const Json& child(const Json& json, const char* name) {
  static const Json kNothing = Json::object();
  const auto found = json.find(name);
  return found != json.end() && found->is_object() ? *found : kNothing;
}

std::string text_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

void check_value(bool valid, const char* key, const Json& value, const char* expected, const char* way_out) {
  if (valid) return;
  // dump() of nested JSON is recursive, however deep a file nests it.
  const std::string found =
      value.is_structured() ? fmt::format("an {}", value.type_name()) : printable(value.dump(), 40);
  throw Malformed{fmt::format("{} is {}, expected {}", key, found, expected), way_out};
}

int64_t size_of_value(const char* key, const Json& value, int least, const char* way_out) {
  const double number = value.is_number_integer() ? value.get<double>() : -1;
  check_value(number >= least && number < 1 << 24, key, value, "a size", way_out);
  return value.get<int64_t>();
}

void Reader::operator()(const char* key, std::optional<int64_t>& into, int least) const {
  if (const Json* value = find_member(json_, key)) into = size_of_value(key, *value, least, way_out_);
}

void Reader::operator()(const char* key, std::optional<double>& into) const {
  if (const Json* value = find_member(json_, key)) {
    check_value(value->is_number() && value->get<double>() > 0 && value->get<double>() < 1, key, *value,
                "a number between 0 and 1", way_out_);
    into = value->get<double>();
  }
}

void Reader::operator()(const char* key, std::optional<Activation>& into) const {
  if (const Json* value = find_member(json_, key)) {
    const bool known = value->is_string() && read_value(value->get<std::string>(), into.emplace());
    check_value(known, key, *value, "gelu or quick_gelu", kUnsupported);
  }
}

}  // namespace tpgm::json_members

// Members of the JSON objects in config files, which are not trusted. What is wrong throws Malformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tpgm/base/text.h"
#include "tpgm/models/config.h"

namespace tpgm::json_members {

using Json = nlohmann::json;

inline constexpr const char* kWayOut = "restore it, or remove it and give the sizes with `model`";
inline constexpr const char* kUnsupported =
    "this is not known here; as TorchScript any model can be tuned: docs/models.md";

/// The object that the text of a file is.
Json parse(std::string_view text, const char* way_out = kWayOut);

/// A member that is there and not null; nullptr if there is none.
const Json* find_member(const Json& json, const char* key);
/// A member that is an object; an empty one if it is missing or something else.
const Json& child(const Json& json, const char* name);
/// A member that is text; empty if it is missing or something else.
std::string text_of(const Json& json, const char* name);

/// "KEY is VALUE, expected EXPECTED; WAY_OUT" unless `valid`.
void check_value(bool valid, const char* key, const Json& value, const char* expected, const char* way_out);
/// A whole number of at least `least` and below 2^24.
int64_t size_of_value(const char* key, const Json& value, int least, const char* way_out);

/// Reads members of one object, where they are there.
class Reader {
 public:
  explicit Reader(const Json& json, const char* way_out = kWayOut) : json_(json), way_out_(way_out) {}

  void operator()(const char* key, std::optional<int64_t>& into, int least = 1) const;
  /// Between 0 and 1.
  void operator()(const char* key, std::optional<double>& into) const;
  void operator()(const char* key, std::optional<Activation>& into) const;

 private:
  const Json& json_;
  const char* way_out_;
};

}  // namespace tpgm::json_members

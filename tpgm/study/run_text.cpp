// The texts in a run folder, which may come from another person.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/study/run_record.h"

namespace tpgm {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The object that the text is; anything else if it is none. Copies and text of JSON are made recursively, so that it
// must not be nested deeply.
Json parse_object(std::string_view text) {
  constexpr int kDeepest = 64;
  const auto check = [&](int depth, Json::parse_event_t, const Json&) {
    require(depth <= kDeepest, "it is nested deeper than {} levels", kDeepest);
    return true;
  };
  return Json::parse(text, check, /*allow_exceptions=*/false);
}

// What is wrong with the fields that `read` asks for is one sentence.
template <class Read>
auto read_fields(std::string_view text, const char* without_fields, const Read& read) {
  const Json json = parse_object(text);
  require(json.is_object(), "it is not a JSON object");
  try {
    return read(json);
  } catch (const Json::exception&) {
    throw Malformed{without_fields};
  }
}

// NaN is written as null.
double number_of(const Json& json) { return json.is_null() ? kUnknown : json.get<double>(); }

std::vector<double> numbers_of(const Json& json) {
  std::vector<double> numbers;
  for (const auto& each : json) numbers.push_back(number_of(each));
  return numbers;
}

double percent_of(const Json& json) {
  const double percent = number_of(json);
  require(std::isnan(percent) || (percent >= 0 && percent <= 100), "it has an accuracy of {} %", percent);
  return percent;
}

// A number of things, or of a step; exact as a double.
int64_t count_of(const Json& json) {
  constexpr uint64_t kMost = uint64_t{1} << 53;
  const bool fits = json.is_number_unsigned() && json.get<uint64_t>() <= kMost;
  require(fits, "it has {} as a count", json.is_number() ? "a number that is none" : json.type_name());
  return json.get<int64_t>();
}

int64_t count_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? 0 : count_of(*found);
}

std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream parts(line);
  for (std::string field; std::getline(parts, field, ',');) fields.push_back(field);
  return fields;
}

}  // namespace

RunResult parse_result(std::string_view text) {
  return read_fields(text, "it has no tests", [](const Json& json) {
    RunResult result;
    for (const auto& test : json.at("tests"))
      result.tests.push_back({test.at("name").get<std::string>(), test.at("id").get<bool>(),
                              count_of(test.at("pictures")), count_in(test, "skipped_pictures"),
                              count_in(test, "scored_classes"), percent_of(test.at("top1"))});
    if (const auto found = json.find("selection"); found != json.end()) result.selection = number_of(*found);
    result.selection_images = count_in(json, "selection_pictures");
    if (const auto found = json.find("relative_distance"); found != json.end())
      result.relative_distance = number_of(*found);
    if (const auto found = json.find("diagnosis"); found != json.end() && found->is_string())
      result.diagnosis = found->get<std::string>();
    if (const auto found = json.find("seconds"); found != json.end() && found->is_number())
      result.seconds = found->get<double>();
    if (const auto found = json.find("weights"); found != json.end() && found->is_string())
      result.weights = found->get<std::string>();
    result.json = dump(json, 2);
    return result;
  });
}

RadiusHistory parse_radii(std::string_view text) {
  return read_fields(text, "it has no radii of each tensor", [](const Json& json) {
    RadiusHistory history{json.at("names").get<std::vector<std::string>>(), {}};
    const auto &steps = json.at("steps"), &radii = json.at("radii"), &ratios = json.at("ratios");
    const auto radius_steps = json.find("radius_steps");  // older runs have none
    for (size_t i = 0; i < steps.size(); ++i) {
      auto& entry = history.entries.emplace_back();
      entry.step = count_of(steps.at(i));
      entry.radii = numbers_of(radii.at(i));
      entry.ratios = numbers_of(ratios.at(i));
      if (radius_steps != json.end() && i < radius_steps->size() && !radius_steps->at(i).is_null())
        entry.radius_step = count_of(radius_steps->at(i));
    }
    return history;
  });
}

std::optional<RunEnvironment> parse_environment(std::string_view text) try {
  const Json json = parse_object(text);
  if (!json.is_object()) return std::nullopt;
  const auto member = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto threads = json.find("threads");
  return RunEnvironment{member("command"),
                        member("version"),
                        member("libtorch"),
                        member("device"),
                        threads != json.end() && threads->is_number_integer() ? threads->get<int64_t>() : 0,
                        member("host"),
                        member("started")};
} catch (const Malformed&) {
  return std::nullopt;
}

// No field of it has commas or quotes.
EpochHistory parse_epochs(std::string text) {
  EpochHistory history{{}, std::move(text)};
  std::istringstream lines(history.csv);
  std::string line;
  std::getline(lines, line);
  const auto names = fields_of(line);
  const auto place = [&](const char* name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const size_t epoch = place("epoch"), loss = place("train_loss"), accuracy = place("selection_accuracy");
  while (std::getline(lines, line)) {
    const auto fields = fields_of(line);
    const auto number = [&](size_t i) {
      return i < fields.size() ? parse_number<double>(fields[i]).value_or(kUnknown) : kUnknown;
    };
    const EpochRecord record{number(epoch), number(loss), number(accuracy)};
    if (std::isfinite(record.epoch)) history.epochs.push_back(record);
  }
  return history;
}

std::string to_text(const RunEnvironment& environment) {
  return dump({{"command", environment.command},
               {"version", environment.version},
               {"libtorch", environment.libtorch},
               {"device", environment.device},
               {"threads", environment.threads},
               {"host", environment.host},
               {"started", environment.started}},
              2);
}

std::string to_text(const RadiusHistory& history) {
  Json json = {{"names", history.names},
               {"steps", Json::array()},
               {"radii", Json::array()},
               {"ratios", Json::array()},
               {"radius_steps", Json::array()}};
  for (const auto& entry : history.entries) {
    json["steps"].push_back(entry.step);
    json["radii"].push_back(entry.radii);
    json["ratios"].push_back(entry.ratios);
    json["radius_steps"].push_back(entry.radius_step ? Json(*entry.radius_step) : Json(nullptr));
  }
  return dump(json);
}

}  // namespace tpgm

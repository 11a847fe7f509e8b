#include "tpgm/study/run_record.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "tpgm/base/call.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/base/version.h"
#include "tpgm/io/file.h"
#include "tpgm/io/hash.h"
#include "tpgm/io/metadata.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/train/recipe.h"
#include "tpgm/train/run_log.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void damaged(const fs::path& file, const char* why) {
  TORCH_CHECK(false, "'", printable(file.string(), kMaxPath), "' is damaged: ", why);
}

// Nothing without a file. What is wrong with its text as JSON, or with the fields that `parse` asks for, is
// one sentence.
template <class Parse>
auto read_json(const fs::path& file, const char* without_fields,
               const Parse& parse) -> std::optional<decltype(parse(Json()))> {
  const auto text = read_text(file);
  if (!text) {
    std::error_code error;
    TORCH_CHECK(!fs::exists(file, error), "cannot read '", printable(file.string(), kMaxPath), "'");
    return std::nullopt;
  }
  const auto json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) damaged(file, "it is not a JSON object");
  try {
    return parse(json);
  } catch (const Json::exception&) {
    damaged(file, without_fields);
  }
}

// NaN is written as null.
double number_of(const Json& json) { return json.is_null() ? kUnknown : json.get<double>(); }

std::vector<double> numbers_of(const Json& json) {
  std::vector<double> numbers;
  for (const auto& each : json) numbers.push_back(number_of(each));
  return numbers;
}

std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

RunEnvironment RunEnvironment::here(c10::Device device, std::string command) {
  char host[256] = "", when[64] = "";
  ::gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return {
      std::move(command), tpgm::version(), TORCH_VERSION, device.str(), at::get_num_threads(), host, when};
}

bool RunTest::same_data(const RunTest& other) const {
  return name == other.name && id == other.id && images == other.images &&
         scored_classes == other.scored_classes;
}

fs::path recipe_of(const fs::path& run) { return run / kRunRecipe; }
fs::path environment_of(const fs::path& run) { return run / "environment.json"; }
fs::path state_of(const fs::path& run) { return run / "resume.safetensors"; }
fs::path result_of(const fs::path& run) { return run / "result.json"; }
fs::path weights_of(const fs::path& run) { return run / "best.safetensors"; }
fs::path last_weights_of(const fs::path& run) { return run / "last.safetensors"; }
fs::path predictions_of(const fs::path& run) { return run / "predictions.safetensors"; }

std::string weights_fingerprint(const fs::path& run) {
  std::error_code ignored;
  if (!fs::exists(weights_of(run), ignored)) return "";
  const MappedFile file(weights_of(run));
  Fingerprint fingerprint;
  fingerprint.add(file.bytes());
  return fingerprint.text();
}

bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(recipe_of(path), ignored);
}

bool is_finished(const fs::path& run) {
  std::error_code ignored;
  return fs::exists(result_of(run), ignored);
}

std::optional<RunResult> read_result(const fs::path& run) try {
  return read_json(result_of(run), "it has no tests", [](const Json& json) {
    RunResult result;
    for (const auto& test : json.at("tests"))
      result.tests.push_back({test.at("name").get<std::string>(), test.at("id").get<bool>(),
                              test.at("pictures").get<int64_t>(), test.value("skipped_pictures", int64_t{0}),
                              test.value("scored_classes", int64_t{0}), number_of(test.at("top1"))});
    if (const auto found = json.find("selection"); found != json.end()) result.selection = number_of(*found);
    if (const auto found = json.find("relative_distance"); found != json.end())
      result.relative_distance = number_of(*found);
    result.selection_images = json.value("selection_pictures", int64_t{0});
    if (const auto found = json.find("seconds"); found != json.end() && found->is_number())
      result.seconds = found->get<double>();
    if (const auto found = json.find("weights"); found != json.end() && found->is_string())
      result.weights = found->get<std::string>();
    if (const auto found = json.find("diagnosis"); found != json.end() && found->is_string())
      result.diagnosis = found->get<std::string>();
    result.json = dump(json, 2);
    return result;
  });
} catch (...) {
  rethrow_from("read_result");
}

std::optional<RadiusHistory> read_radii(const fs::path& run) try {
  return read_json(run / "radii.json", "it has no radii of each tensor", [](const Json& json) {
    RadiusHistory history{json.at("names").get<std::vector<std::string>>(), {}};
    const auto& steps = json.at("steps");
    const auto radius_steps = json.value("radius_steps", Json::array());  // older runs have none
    for (size_t i = 0; i < steps.size(); ++i) {
      auto& entry = history.entries.emplace_back();
      entry.step = steps.at(i).get<int64_t>();
      entry.radii = numbers_of(json.at("radii").at(i));
      entry.ratios = numbers_of(json.at("ratios").at(i));
      if (i < radius_steps.size() && !radius_steps[i].is_null())
        entry.radius_step = radius_steps[i].get<int64_t>();
    }
    return history;
  });
} catch (...) {
  rethrow_from("read_radii");
}

std::optional<RunPredictions> read_predictions(const fs::path& run) try {
  const fs::path file = predictions_of(run), weights = weights_of(run);
  std::error_code error;
  if (!fs::exists(file, error) || !fs::exists(weights, error)) return std::nullopt;
  RunPredictions predictions{keys::kClasses.of(SafetensorsFile(weights).metadata()), NamedTensors("Tensor")};
  const std::string_view suffix = kLabelsOfTest;
  for (const auto& item : SafetensorsFile(file).tensors()) {
    if (item.value().scalar_type() != at::kInt || item.value().dim() != 1)
      damaged(file, "it has no int32 class for each image of a test");
    const auto& key = item.key();
    if (key.ends_with(suffix))
      predictions.labels.insert(key.substr(0, key.size() - suffix.size()), item.value());
    else
      predictions.tests.insert(key, item.value());
  }
  for (const auto& item : predictions.labels) {
    const auto* test = predictions.tests.find(item.key());
    if (!test || test->sizes() != item.value().sizes())
      damaged(file, "it has labels of other images than predictions");
  }
  return predictions;
} catch (...) {
  rethrow_from("read_predictions");
}

std::optional<RunEnvironment> read_environment(const fs::path& run) {
  const auto json = Json::parse(read_text(environment_of(run)).value_or(""), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto threads = json.find("threads");
  return RunEnvironment{text("command"),
                        text("version"),
                        text("libtorch"),
                        text("device"),
                        threads != json.end() && threads->is_number_integer() ? threads->get<int64_t>() : 0,
                        text("host"),
                        text("started")};
}

// No field of it has commas or quotes.
EpochHistory read_epochs(const fs::path& run) {
  EpochHistory history{{}, read_text(run / "summary.csv").value_or("")};
  std::istringstream lines(history.csv);
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, ',');) fields.push_back(field);
    if (names.empty()) {
      names = fields;
      continue;
    }
    const auto number = [&](const char* name) {
      const auto i = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      return i < fields.size() ? parse_number<double>(fields[i]).value_or(kUnknown) : kUnknown;
    };
    const EpochRecord epoch{number("epoch"), number("train_loss"), number("selection_accuracy")};
    if (std::isfinite(epoch.epoch)) history.epochs.push_back(epoch);
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

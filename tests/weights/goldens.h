// The checkpoints that other libraries wrote, and what is in each.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace tpgm::testing {

inline std::filesystem::path golden_folder() {
  return std::filesystem::path(TPGM_TEST_DATA) / "weights" / "goldens";
}

struct GoldenCase {
  std::string name;   // of the folder
  std::string model;  // the family, with what its weights do not show
  std::filesystem::path checkpoint, expected;

  std::string model_with(const std::string& size) const {
    return model + (model.find(':') == std::string::npos ? ":" : ",") + size;
  }
  std::string test_name() const {
    std::string result = name + (expected.stem() == "expected" ? "" : "-" + expected.stem().string());
    std::replace_if(result.begin(), result.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return result;
  }
};
inline void PrintTo(const GoldenCase& golden, std::ostream* out) { *out << golden.name; }

/// "vit:heads=2,pool=mean": the options that neither shapes nor a config.json show; read_weights() must find
/// all others.
inline std::string model_of(const std::string& family, const nlohmann::json& options, bool has_config) {
  std::string sizes;
  const auto add = [&](const std::string& name, const std::string& value) {
    sizes += (sizes.empty() ? ":" : ",") + name + "=" + value;
  };
  for (const char* size : {"heads", "text_heads"}) {
    if (options.contains(size) && !has_config) add(size, std::to_string(options[size].get<int>()));
  }
  if (options.contains("activation") && !has_config) add("activation", options["activation"]);
  if (options.contains("pool")) add("pool", options["pool"]);
  return family + sizes;
}

inline std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for (const auto& item : std::filesystem::directory_iterator(golden_folder())) {
    const auto description = item.path() / "case.json";
    if (!std::filesystem::exists(description)) continue;
    const auto json = nlohmann::json::parse(std::ifstream(description));
    const bool has_config = std::filesystem::exists(item.path() / "config.json") ||
                            std::filesystem::exists(item.path() / "open_clip_config.json");
    const std::string file = json.at("checkpoint");
    const auto checkpoint = file == "." ? item.path() : item.path() / file;
    const auto add = [&](const std::string& expected, const nlohmann::json& options) {
      cases.push_back({item.path().filename().string(), model_of(json.at("model"), options, has_config),
                       checkpoint, item.path() / expected});
    };
    add("expected.safetensors", json.at("options"));
    if (!json.contains("variants")) continue;
    for (const auto& [expected, options] : json.at("variants").items()) add(expected, options);
  }
  std::sort(cases.begin(), cases.end(),
            [](const auto& a, const auto& b) { return a.test_name() < b.test_name(); });
  return cases;
}

}  // namespace tpgm::testing

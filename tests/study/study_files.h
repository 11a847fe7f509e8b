// What the tests of tpgm/study share: a data set without pixels, run folders by their files, and a process
// that makes a run in no time.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/data/data_files.h"
#include "tpgm/study/jobs.h"
#include "tpgm/train/recipe.h"

namespace tpgm::test {

/// Two classes of 20, 6 and 8 images: train/home, test/home and test/away. They are never decoded.
inline void write_data(const std::filesystem::path& folder) {
  for (const auto& [part, count] : {std::pair{"train/home", 20}, {"test/home", 6}, {"test/away", 8}}) {
    for (const char* name : {"bars", "dots"}) {
      for (int i = 0; i < count; ++i) test::put_file(folder / part / name / fmt::format("{:02}.png", i), "");
    }
  }
}

struct ResultFile {
  double selection = 50, home = 60, away = 40;
  int64_t images = 100;
};

inline std::string result_json(const ResultFile& result) {
  return fmt::format(R"({{"method": "ft", "selection": {}, "seconds": 2.5, "tests": [)"
                     R"({{"name": "home", "id": true, "top1": {}, "pictures": {}, "scored_classes": 2}}, )"
                     R"({{"name": "away", "id": false, "top1": {}, "pictures": {}, "scored_classes": 2}}]}})",
                     result.selection, result.home, result.images, result.away, result.images);
}

inline void write_run(const std::filesystem::path& run, const Settings& settings,
                      const ResultFile& result = {}) {
  test::put_file(run / "recipe.toml", to_toml(make_options(settings)));
  test::put_file(run / "result.json", result_json(result));
}

/// "Trains" by a shell script: its $1 is the run folder, $2 the recipe or "resume", $3 and on the settings.
inline JobOptions by_script(const std::string& script) {
  JobOptions options;
  options.process = [script](const RunStart& start) {
    Process process{"/bin/sh", {"sh", "-c", script, "sh", start.folder.string()}};
    process.arguments.push_back(start.resume ? "resume" : start.recipe.string());
    for (const auto& [key, value] : start.settings) process.arguments.push_back(key + "=" + value);
    return process;
  };
  return options;
}

/// A finished run, better on selection data where its folder says lr=1e-2.
inline std::string finishing_script() {
  ResultFile best;
  best.selection = 80;
  return fmt::format(
      "mkdir -p \"$1\" && echo 'method = \"ft\"' > \"$1/recipe.toml\"\n"
      "case \"$1\" in\n*lr=1e-2*) echo '{}' > \"$1/result.json\" ;;\n"
      "*) echo '{}' > \"$1/result.json\" ;;\nesac\n",
      result_json(best), result_json({}));
}

}  // namespace tpgm::test

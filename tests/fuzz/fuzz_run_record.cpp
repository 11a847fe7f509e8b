// The files in a run folder: the text is read as each of them.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/fuzz/support.h"
#include "tpgm/study/run_record.h"

using namespace tpgm;

namespace {

void check_result(std::string_view bytes) {
  const auto result = parse_result(bytes);
  const auto percent = [](double value) { return std::isnan(value) || (value >= 0 && value <= 100); };
  for (const auto& test : result.tests) {
    fuzz::demand(test.images >= 0 && test.skipped >= 0 && test.scored_classes >= 0,
                 "a count is not negative");
    fuzz::demand(percent(test.top1), "an accuracy is in percent");
  }
  const auto again = parse_result(result.json);
  fuzz::demand(again.tests.size() == result.tests.size() && again.json == result.json,
               "the text of a result is that result");
  const auto copy = nlohmann::ordered_json::parse(result.json);  // as sweeps print it
  fuzz::demand(!copy.dump().empty(), "it can be written");
}

void check_radii(std::string_view bytes) {
  const auto history = parse_radii(bytes);
  const auto text = to_text(history);
  const auto again = parse_radii(text);
  fuzz::demand(again.entries.size() == history.entries.size() && to_text(again) == text,
               "radii that are written are the same");
}

void check_environment(std::string_view bytes) {
  const auto environment = parse_environment(bytes);
  if (!environment) return;
  fuzz::demand(parse_environment(to_text(*environment))->threads == environment->threads,
               "an environment that is written is the same");
}

}  // namespace

FUZZ(bytes) {
  for (const auto check : {check_result, check_radii, check_environment})
    fuzz::parse_or_refuse(bytes.size(), [&] { check(bytes); });
  fuzz::parse_or_refuse(bytes.size(), [&] {
    for (const auto& epoch : parse_epochs(std::string(bytes)).epochs)
      fuzz::demand(std::isfinite(epoch.epoch), "an epoch has a number");
  });
}

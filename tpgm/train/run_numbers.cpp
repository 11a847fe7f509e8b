// The numbers in the state of a run, as JSON.
#include <c10/util/Exception.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "tpgm/base/untrusted.h"
#include "tpgm/train/run_state.h"

namespace tpgm {
namespace {

using Json = RunLog::Json;

bool read_member(const Json& json, std::string& value) {
  if (!json.is_string()) return false;
  value = json.get<std::string>();
  return true;
}
bool read_member(const Json& json, double& value) {
  if (!json.is_number()) return false;
  value = json.get<double>();
  return true;
}
bool read_member(const Json& json, int64_t& value) {
  const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  if (!json.is_number_integer() || !fits) return false;
  value = json.get<int64_t>();
  return true;
}

}  // namespace

RunLog::Json to_json(const RunState& state) {
  Json json;
  RunState::fields([&](const char* key, const auto& value) { json[key] = value; }, state);
  return json;
}

RunState parse_run_state(const RunLog::Json& numbers, int64_t epochs, int64_t steps_per_epoch) {
  RunState state;
  RunState::fields(
      [&](const char* key, auto& value) {
        const auto found = numbers.find(key);
        if (RunState::is_newer(key) && numbers.is_object() && found == numbers.end()) return;
        require(found != numbers.end() && read_member(*found, value), "it has no '{}' of a run's state", key);
      },
      state);
  bool fits = state.epochs_done >= 0 && state.epochs_done <= epochs;
  if (fits) {
    const int64_t begin = state.epochs_done * steps_per_epoch;
    fits = state.step >= begin && state.step - begin <= steps_per_epoch;
  }
  require(fits, "it is at step {} after {} epochs", state.step, state.epochs_done);
  require(
      state.best_epoch >= 0 && state.best_epoch <= epochs && state.radius_batches >= 0 && state.skipped >= 0,
      "it has counts that no run has");
  return state;
}

RunState run_state_of(const RunLog::Json& numbers, int64_t epochs, int64_t steps_per_epoch,
                      const std::filesystem::path& file) {
  try {
    return parse_run_state(numbers, epochs, steps_per_epoch);
  } catch (const Malformed& malformed) {
    TORCH_CHECK(false, "'", file.string(), "' is damaged: ", malformed.reason,
                "; begin the run again with `overwrite`");
  }
}

}  // namespace tpgm

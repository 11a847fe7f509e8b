// Files of a run folder, and the machine it was made on.
#include "tpgm/study/run_record.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/version.h>
#include <unistd.h>

#include <ctime>
#include <string_view>

#include "tpgm/base/call.h"
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

[[noreturn]] void damaged(const fs::path& file, const std::string& why) {
  TORCH_CHECK(false, "'", printable(file.string(), kMaxPath), "' is damaged: ", printable(why, 600));
}

// Nothing without a file. `parse` throws Malformed.
template <class Parse>
auto read_if_there(const fs::path& file,
                   const Parse& parse) -> std::optional<decltype(parse(std::string()))> {
  const auto text = read_text(file);
  if (!text) {
    std::error_code error;
    TORCH_CHECK(!fs::exists(file, error), "cannot read '", printable(file.string(), kMaxPath), "'");
    return std::nullopt;
  }
  try {
    return parse(*text);
  } catch (const Malformed& malformed) {
    damaged(file, malformed.reason);
  }
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
  return read_if_there(result_of(run), parse_result);
} catch (...) {
  rethrow_from("read_result");
}

std::optional<RadiusHistory> read_radii(const fs::path& run) try {
  return read_if_there(run / "radii.json", parse_radii);
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
  return parse_environment(read_text(environment_of(run)).value_or(""));
}

EpochHistory read_epochs(const fs::path& run) {
  return parse_epochs(read_text(run / "summary.csv").value_or(""));
}

}  // namespace tpgm

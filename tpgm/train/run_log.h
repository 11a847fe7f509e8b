// What the training loop tells about a run, and where it keeps what a run needs to resume.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tpgm/io/safetensors_writer.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/methods/method.h"

namespace tpgm {

/// The trainer writes through this and knows no files. A run folder is one; an experiment tracker or a test
/// can be another. Calls come from one thread. Errors thrown here end the training.
class RunLog {
 public:
  using Json = nlohmann::ordered_json;
  virtual ~RunLog() = default;

  /// What messages call the run: a folder, say.
  virtual const std::filesystem::path& path() const = 0;

  /// A line of the log: an object with "event".
  virtual void log(const Json& line) = 0;
  /// A row of the table of epochs; the first one's keys are the columns.
  virtual void epoch(const Json& row) = 0;
  virtual void scalar(const std::string& tag, double value, int64_t step) = 0;
  /// Radii and ratios of each tensor, which may be empty. `radius_step`: while the method learns them after
  /// the last training step, how many it has learned with; what was told of that before stays.
  virtual void radii(int64_t step, const NamedNumbers& radii, const NamedNumbers& ratios,
                     std::optional<int64_t> radius_step = std::nullopt) = 0;

  /// The weights by the name "best" or "last", in the place of those saved under it before.
  virtual void save_weights(const std::string& name, const NamedTensors& tensors,
                            const Metadata& metadata) = 0;
  struct Weights {
    NamedTensors tensors;
    Metadata metadata;
    std::filesystem::path path;  ///< for messages
  };
  /// What was last saved under the name. Throws if there is nothing.
  virtual Weights load_weights(const std::string& name) const = 0;

  /// For each test by its name the number of the predicted class of each image, int32, in the order of the
  /// test's subset; −1: it could not be read.
  virtual void save_predictions(const NamedTensors& tests) = 0;

  /// Keeps `text`, in the place of what was kept under the name before, for the user to read; returns where.
  virtual std::filesystem::path save_text(const std::string& name, const std::string& text) = 0;

  /// Everything that a run needs to resume. What was logged until now goes with it.
  virtual void save_state(const NamedTensors& tensors, Json numbers) = 0;
  struct State {
    NamedTensors tensors;
    Json numbers;
  };
  /// The last state that was saved; takes back what was logged after it. None: the run begins.
  virtual std::optional<State> load_state() = 0;
  /// Where states go, for messages.
  virtual std::filesystem::path state_path() const = 0;

  /// The run is finished, and needs no state any more.
  virtual void finish(const Json& result) = 0;
};

}  // namespace tpgm

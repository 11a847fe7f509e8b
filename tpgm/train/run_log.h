// The interface to which the training loop writes: log lines, weights, predictions, and the state to resume
// from.
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

/// The end of the name under which the labels of a test are saved. No test has it: '=' stands for NAME=PATH.
inline constexpr const char* kLabelsOfTest = "=labels";

/// The trainer writes through this interface and knows no files. RunFolder (study/run_folder.h) implements
/// it; an experiment tracker or a test can do so, too. All calls come from one thread. An exception ends the
/// training.
class RunLog {
 public:
  using Json = nlohmann::ordered_json;
  virtual ~RunLog() = default;

  /// The name of the run in messages, such as its folder.
  virtual const std::filesystem::path& path() const = 0;

  /// Writes a line of the log: an object with the key "event".
  virtual void log(const Json& line) = 0;
  /// Writes a row of the table of epochs. The keys of the first row are the columns.
  virtual void epoch(const Json& row) = 0;
  virtual void scalar(const std::string& tag, double value, int64_t step) = 0;
  /// Writes radii and ratios by tensor; either may be empty. `radius_step` counts the radius steps of
  /// finish(), after the last training step; a pair of steps that is there already is not written again.
  virtual void radii(int64_t step, const NamedNumbers& radii, const NamedNumbers& ratios,
                     std::optional<int64_t> radius_step = std::nullopt) = 0;

  /// Saves weights under the name "best" or "last", replacing those saved before.
  virtual void save_weights(const std::string& name, const NamedTensors& tensors,
                            const Metadata& metadata) = 0;
  struct Weights {
    NamedTensors tensors;
    Metadata metadata;
    std::filesystem::path path;  ///< for messages
  };
  /// Loads the weights saved under the name. Throws if there are none.
  virtual Weights load_weights(const std::string& name) const = 0;

  /// Saves the predicted classes of each test by its name, and by NAME + kLabelsOfTest the classes that are
  /// right: int32 [images], in the order of the subset of the test; −1 for unreadable images, and for images
  /// without a label.
  virtual void save_predictions(const NamedTensors& tests) = 0;

  /// Saves a text for the user, replacing an earlier one of that name. Returns where it is.
  virtual std::filesystem::path save_text(const std::string& name, const std::string& text) = 0;

  /// Saves everything that a run needs to resume. The log up to now belongs to this state.
  virtual void save_state(const NamedTensors& tensors, Json numbers) = 0;
  struct State {
    NamedTensors tensors;
    Json numbers;
  };
  /// Loads the last saved state and removes what was logged after it. Empty if none was saved: the run
  /// begins.
  virtual std::optional<State> load_state() = 0;
  /// Where the state is saved, for messages.
  virtual std::filesystem::path state_path() const = 0;

  /// Writes the result of the finished run and deletes its state.
  virtual void finish(const Json& result) = 0;
};

}  // namespace tpgm

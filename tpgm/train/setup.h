// From options to what a run needs: the model, its anchor, the method, the data.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/data/loader.h"
#include "tpgm/data/split.h"
#include "tpgm/io/metadata.h"
#include "tpgm/methods/method.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/options.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm {

/// A set of pictures to be scored on.
struct TestSet {
  std::string name;
  SampleSubset subset;
  bool id = false;  ///< in-distribution
};

/// How pictures become what a model sees, the same for every command.
struct Pictures {
  EvalViewOptions eval;
  TrainViewOptions train;
  bool augment = true;   ///< train on `train`, not on `eval`
  LoaderOptions loader;  ///< device, channels, mean, std, workers and so on; of batches nothing
};

/// What --device says; nothing for "auto". Throws for what is no device's name.
std::optional<c10::Device> parse_device(const std::string& text);
/// The same, with "cuda" or "cpu" for "auto"; throws for a device that is not there.
c10::Device find_device(const std::string& text);

/// What the options say; or else the checkpoint, by the metadata of load_classifier(); or else the usual of
/// the model.
Pictures make_pictures(const TrainOptions& options, const Classifier& model, const Metadata& metadata,
                       c10::Device device);

/// The data of a run: its own splits, or what is held out, as the options say; the training domain's own test
/// first among `tests`.
struct RunData {
  std::vector<std::string> classes;
  SampleSubset train, radius, selection;
  std::vector<TestSet> tests;
  std::vector<std::string> notes;
};
/// `classes`: in the head's order, or empty for the data set's own. Throws if a picture is in two sets.
RunData open_data(const TrainOptions& options, const std::vector<std::string>& classes);

/// Tests alone, for a model with these classes, without a training domain: each is a part of options.data_dir
/// or NAME=PATH. Of a run, with options.train, what open_data() holds out.
std::vector<TestSet> open_tests(const TrainOptions& options, const std::vector<std::string>& classes);

/// The classes of a head made from text by the names of the data's folders, which have underscores for
/// spaces: those of `data` that are among them are renamed to their folders. Nothing if none is; throws if
/// only some are.
std::optional<std::vector<std::string>> classes_by_folder(const Dataset& data,
                                                          std::vector<std::string> names);

struct Setup {
  TrainOptions options;  ///< with everything that was left open decided, and absolute paths
  c10::Device device = c10::kCPU;
  std::shared_ptr<Classifier> model;  ///< on the device, holding the weights to start from
  Metadata metadata;                  ///< for what is saved from it
  std::unique_ptr<Method> method;
  RunData data;
  Pictures pictures;
  std::vector<std::string> notes;  ///< for the user to read
};

/// Throws, before anything is written, for whatever is wrong with the options, files or data.
Setup prepare(TrainOptions options);

}  // namespace tpgm

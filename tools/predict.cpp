// `tpgm predict`: logits or features of pictures.
#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/core/device.h"
#include "tpgm/data/class_list.h"
#include "tpgm/data/loader.h"
#include "tpgm/io/file.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/classifier.h"
#include "tpgm/models/families.h"
#include "tpgm/models/registry.h"
#include "tpgm/nn/precision.h"
#include "tpgm/report/table.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/train/setup.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm::tools {
namespace {

struct Arguments {
  std::string model, checkpoint, head, where, output, csv, class_list, device = "auto";
  std::string classes = "all", decode = "exact", interpolation = "bicubic";
  std::vector<std::string> domains;
  std::vector<double> mean, std;
  std::optional<double> crop_pct;
  const CLI::Option* interpolation_flag = nullptr;
  LoaderArguments loader;
  bool features = false, amp = false, json = false;
};

// A script that nobody gave a head is a classifier by itself.
bool whole_script(const Arguments& args) {
  return is_script(args.model) && args.head.empty() && args.checkpoint.empty() && !args.features;
}

/// What was computed of one part, in its order.
struct Predictions {
  Dataset::Part part;
  std::vector<int64_t> indices;    // of the pictures that could be read
  at::Tensor rows, labels;         // logits or features; labels
  std::vector<int64_t> predicted;  // classes
  std::vector<int64_t> scored;     // over which; empty: all
  int64_t right = 0, labelled = 0;
};

// The classes of the data in the order of the head's.
Dataset open_data(const Arguments& args, int64_t head_classes) {
  if (!args.class_list.empty()) {
    const auto classes = load_class_list(args.class_list);
    TORCH_CHECK(args.features || static_cast<int64_t>(classes.size()) == head_classes,
                "[predict] the head has ", head_classes, " classes, --class-list '", args.class_list, "' ",
                classes.size());
    return Dataset(args.where, DatasetOptions().classes(classes));
  }
  Dataset data(args.where);
  if (args.features || data.classes().empty()) return data;
  if (!args.head.empty()) {
    if (auto names = classes_by_folder(data, load_zero_shot(args.head).class_names)) {
      return Dataset(args.where, DatasetOptions().classes(*names));
    }
    say("tpgm predict: no folder is called as a class of the head is; they are matched by their order\n");
  }
  TORCH_CHECK(static_cast<int64_t>(data.classes().size()) == head_classes, "[predict] the head has ",
              head_classes, " classes, '", args.where, "' ", data.classes().size(),
              ": say which is which with --class-list, the head's classes in order, one a line by their "
              "folders' names, or a "
              "folder that has them all");
  return data;
}

LoaderOptions::Triple triple(const std::vector<double>& given, const std::array<double, 3>& usual,
                             const char* flag) {
  if (given.empty()) return usual;
  if (given.size() == 1) return {given[0], given[0], given[0]};
  if (given.size() != 3)
    throw UsageError(fmt::format("{} takes one number or three, separated by commas", flag));
  return {given[0], given[1], given[2]};
}

class Predictor {
 public:
  Predictor(const Arguments& args, const LoadedClassifier& loaded, c10::Device device)
      : args_(args), model_(*loaded.model), device_(device) {
    const Family& family = *parse_model(keys::kModel.at(loaded.metadata)).family;
    const Normalization& usual = family.normalization;
    view_.image_size(model_.backbone->image_size())
        .crop_pct(args.crop_pct.value_or(family.crop_pct))
        .decode(parsed<Decode>(args.decode))
        .interpolation(parsed<Interpolation>(args.interpolation));
    options_ = args.loader.options(device_)
                   .channels(model_.backbone->channels())
                   .mean(triple(args.mean, usual.mean, "--mean"))
                   .std(triple(args.std, usual.std, "--std"));
    model_.to(device_);
    model_.eval();
    to_channels_last(model_);
  }

  Predictions run(const Dataset::Part& part, Progress& progress) {
    const c10::InferenceMode no_autograd;
    Loader loader(all_of(part), view_, options_);
    Predictions result{part, {}, {}, {}, {}, {}, 0, 0};
    std::vector<at::Tensor> rows, labels;
    loader.start(0);
    while (auto batch = loader.next()) {
      std::optional<Autocast> autocast;
      if (args_.amp) autocast.emplace(device_.type());
      if (!batch->indices.empty()) {
        const bool inside = args_.features || whole_script(args_);
        const auto out = inside ? model_.features(batch->images) : model_.forward(batch->images);
        rows.push_back(out.to(at::kCPU, at::kFloat));
        labels.push_back(batch->labels.to(at::kCPU));
      }
      result.indices.insert(result.indices.end(), batch->indices.begin(), batch->indices.end());
      progress.add(batch->indices.size());
    }
    for (const auto& bad : loader.skipped())
      say(fmt::format("tpgm predict: skipped '{}': {}\n", printable(bad.place, kMaxPath),
                      printable(bad.reason, kMaxPath)));
    skipped += static_cast<int64_t>(loader.skipped().size());
    if (rows.empty()) return result;
    result.rows = at::cat(rows);
    result.labels = at::cat(labels);
    if (!args_.features) score(result);
    return result;
  }

  /// How pictures become what the model sees.
  std::string view_text() const {
    return fmt::format("{} pixels, crop_pct {:.4g}, {}, decode {}, mean {}, std {}", view_.image_size(),
                       view_.crop_pct(), args_.interpolation, args_.decode, fmt::join(options_.mean(), " "),
                       fmt::join(options_.std(), " "));
  }

  ImageView view() const {
    const auto &mean = options_.mean(), &std = options_.std();
    return {{mean.begin(), mean.end()}, {std.begin(), std.end()}, view_.crop_pct(), args_.interpolation};
  }

  int64_t skipped = 0;

 private:
  void score(Predictions& result) const {
    at::Tensor logits = result.rows;
    if (args_.classes == "subset") {
      result.scored = classes_in(*result.part);
      logits = logits.index_select(1, at::tensor(result.scored));
    }
    const at::Tensor best = logits.argmax(1);
    const auto* best_of = best.const_data_ptr<int64_t>();
    const auto* label_of = result.labels.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < best.size(0); ++i) {
      result.predicted.push_back(result.scored.empty() ? best_of[i]
                                                       : result.scored[static_cast<size_t>(best_of[i])]);
      if (label_of[i] < 0) continue;
      ++result.labelled;
      if (result.predicted.back() == label_of[i]) ++result.right;
    }
  }

  static std::vector<int64_t> classes_in(const Samples& part) {
    std::vector<int64_t> classes(part.labels().begin(), part.labels().end());
    std::sort(classes.begin(), classes.end());
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
    TORCH_CHECK(!classes.empty() && classes.front() >= 0, "[predict] --classes subset: '", part.title(),
                "' has pictures without a label");
    return classes;
  }

  const Arguments& args_;
  Classifier& model_;
  c10::Device device_;
  EvalViewOptions view_;
  LoaderOptions options_;
};

std::string class_text(const std::vector<std::string>& classes, int64_t label) {
  if (label < 0) return "";
  return label < static_cast<int64_t>(classes.size()) ? csv_field(classes[static_cast<size_t>(label)])
                                                      : std::to_string(label);
}

// Keys of two shards may be the same.
std::string place_text(const Samples& part, int64_t index) {
  return part.in_files() ? std::string(part.name(index)) : part.place(index);
}

void write_csv(AtomicFile& file, const std::vector<std::string>& classes, const std::vector<Predictions>& all,
               bool features) {
  std::string text = features ? "part,file,label\n" : "part,file,label,prediction\n";
  for (const auto& each : all) {
    for (size_t i = 0; i < each.indices.size(); ++i) {
      text += fmt::format("{},{},{}", csv_field(each.part->title()),
                          csv_field(place_text(*each.part, each.indices[i])),
                          class_text(classes, each.part->label(each.indices[i])));
      text += features ? "\n" : fmt::format(",{}\n", class_text(classes, each.predicted[i]));
    }
  }
  file.write(text.data(), text.size());
}

double accuracy(const Predictions& each) {
  return 100.0 * static_cast<double>(each.right) / static_cast<double>(each.labelled);
}

void print(const Arguments& args, const std::vector<Predictions>& all, int64_t skipped) {
  if (args.json) {
    auto json = nlohmann::ordered_json{{"output", printable(args.output, kMaxPath)},
                                       {"csv", printable(args.csv, kMaxPath)},
                                       {"skipped", skipped},
                                       {"parts", nlohmann::ordered_json::array()}};
    for (const auto& each : all) {
      nlohmann::ordered_json part{{"name", printable(each.part->title())}, {"pictures", each.indices.size()}};
      if (each.labelled > 0 && !args.features) {
        part["accuracy"] = accuracy(each);
        part["classes_scored"] =
            each.scored.empty() ? each.rows.size(1) : static_cast<int64_t>(each.scored.size());
        part["classes"] = each.rows.size(1);
      }
      json["parts"].push_back(std::move(part));
    }
    fmt::print("{}\n", json.dump(2));
    return;
  }
  for (const auto& each : all) {
    fmt::print("{}: {}, {} {}", printable(each.part->title()), pictures_text(each.indices.size()),
               each.rows.size(1), args.features ? "features" : "logits");
    if (each.labelled > 0 && !args.features) {
      fmt::print(", accuracy {:.2f} % over {} classes", accuracy(each),
                 each.scored.empty()
                     ? fmt::format("all {}", each.rows.size(1))
                     : fmt::format("the {} that occur of {}", each.scored.size(), each.rows.size(1)));
    }
    fmt::print("\n");
  }
  if (skipped > 0) fmt::print("{} skipped\n", pictures_text(static_cast<size_t>(skipped)));
}

LoadedClassifier load(const Arguments& args) {
  LoadOptions options;
  if (!args.head.empty()) {
    options.head(Head::kZeroShot).head_file(args.head);
  } else if (args.features || whole_script(args)) {
    options.head(Head::kFresh).classifier(ClassifierOptions().num_classes(1));  // which nobody asks
  }
  auto loaded = load_classifier(args.model, args.checkpoint, options);
  for (const auto& note : loaded.notes) say(fmt::format("tpgm predict: '{}': {}\n", args.checkpoint, note));
  return loaded;
}

// Pictures are seen as the checkpoint says it saw them, where nothing else is asked for.
void take_view(Arguments& args, const Metadata& metadata) {
  const ImageView own = keys::kView.of(metadata);
  if (args.mean.empty()) args.mean = own.mean;
  if (args.std.empty()) args.std = own.std;
  if (!args.crop_pct) args.crop_pct = own.crop_pct;
  if (own.interpolation && args.interpolation_flag->count() == 0)
    args.interpolation = to_text(*own.interpolation);
}

int predict(Arguments args) {
  const auto device = find_device(args.device);
  if (args.checkpoint.empty() && !is_script(args.model))
    throw UsageError("--checkpoint is required, unless --model is a script");
  if (args.csv.empty()) args.csv = std::filesystem::path(args.output).replace_extension(".csv").string();
  if (std::filesystem::path(args.csv).lexically_normal() ==
      std::filesystem::path(args.output).lexically_normal()) {
    throw UsageError("--csv and --output are the same file");
  }
  if (args.features && args.classes == "subset")
    throw UsageError("--classes subset scores logits; --features has none");
  AtomicFile(args.output);  // throws now, not after the work, if it could not be written
  AtomicFile csv(args.csv);
  const auto loaded = load(args);
  take_view(args, loaded.metadata);
  const int64_t outputs =
      whole_script(args) ? loaded.model->backbone->num_features() : loaded.model->num_classes();
  const Dataset data = open_data(args, outputs);
  print_notes("predict", data);
  const auto parts = parts_of(data, args.domains);

  const size_t pictures = count_pictures(parts);
  Predictor predictor(args, loaded, device);
  std::vector<Predictions> all;
  {
    Progress progress("tpgm predict", pictures, pictures_text);
    for (const auto& part : parts) {
      auto predictions = predictor.run(part, progress);
      if (predictions.rows.defined()) all.push_back(std::move(predictions));
    }
  }
  TORCH_CHECK(!all.empty(), "[predict] no picture of '", args.where, "' could be read");
  std::vector<at::Tensor> rows, labels;
  for (const auto& each : all) {
    rows.push_back(each.rows);
    labels.push_back(each.labels);
  }
  NamedTensors tensors("Tensor");
  tensors.insert(args.features ? "features" : "logits", at::cat(rows));
  tensors.insert("labels", at::cat(labels));
  // Pictures without labels are still told apart by the head's names.
  auto classes = data.classes();
  if (classes.empty() && !args.head.empty()) classes = load_zero_shot(args.head).class_names;
  Metadata metadata;
  keys::kModel.copy(loaded.metadata, metadata);
  keys::kView.set(metadata, predictor.view());
  if (!classes.empty()) keys::kClasses.set(metadata, classes);
  save_safetensors(tensors, args.output, metadata);
  write_csv(csv, classes, all, args.features);
  csv.commit();
  if (!args.json) fmt::print("{}\n{}\nseen as {}\n", args.output, args.csv, predictor.view_text());
  print(args, all, predictor.skipped);
  return 0;
}

}  // namespace

Run configure_predict(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  app.add_option("--checkpoint", args->checkpoint, "Checkpoint: a file or folder of any layout");
  app.add_option(
      "--model", args->model,
      "Name of a model in 'tpgm list models', or script:FILE; default: as the checkpoint says");
  app.add_option("--head", args->head, "Head made by 'tpgm zeroshot'; default: the checkpoint's own");
  app.add_option("--data-dir", args->where,
                 "Data set, as for 'tpgm data check', or a folder of images without labels")
      ->required();
  app.add_option("-o,--output", args->output,
                 "Output .safetensors file: logits (or features) [images, n] and labels [images]")
      ->required();
  app.add_option("--csv", args->csv,
                 "CSV file to write: part, file, label and prediction of each row; default: the output's name with .csv");
  app.add_option("--domains", args->domains,
                 "Domains with all their splits, or single splits of them (real,sketch/test); default: all")
      ->delimiter(',');
  app.add_flag("--features", args->features, "Write features (the input of the head) instead of logits; needs no head");
  app.add_option(
         "--classes", args->classes,
         "Score over all classes of the head, or over the subset that occurs in the part (ImageNet-A, -R)")
      ->check(CLI::IsMember({"all", "subset"}));
  app.add_option("--class-list", args->class_list,
                 "Classes of the head in order: a file with one folder name per line, or a folder of class folders; default: the data's");
  app.add_option("--decode", args->decode, "Image decoding: exact (Pillow's pixels) or fast (DCT scaling)")
      ->check(parses_as<Decode>());
  args->interpolation_flag = app.add_option("--interpolation", args->interpolation, "Interpolation for resizing: bicubic or bilinear")
                                 ->check(parses_as<Interpolation>());
  app.add_option("--crop-pct", args->crop_pct,
                 "Center crop fraction; default: the checkpoint's own, 1 for CLIP, 0.875 for other models")
      ->check(CLI::Range(0.01, 100.0));
  app.add_option("--mean", args->mean,
                 "Mean pixel value in 0..1; default: the checkpoint's own, CLIP's or ImageNet's")
      ->delimiter(',');
  app.add_option("--std", args->std,
                 "Standard deviation of the pixels in 0..1; default: the checkpoint's own, CLIP's or ImageNet's")
      ->delimiter(',');
  args->loader.add_to(app);
  app.add_option("--device", args->device, "Device: cpu, cuda or cuda:N (auto: cuda if available)")
      ->check(parses_as<std::optional<c10::Device>>());
  app.add_flag("--amp", args->amp, "Use AMP: compute in bf16 where that is safe");
  app.add_flag("--json", args->json, "Print the summary as JSON");
  return [args] { return predict(*args); };
}

}  // namespace tpgm::tools

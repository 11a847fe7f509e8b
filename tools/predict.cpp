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
#include "tpgm/data/class_list.h"
#include "tpgm/data/loader.h"
#include "tpgm/io/file.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/classifier.h"
#include "tpgm/models/precision.h"
#include "tpgm/models/registry.h"
#include "tpgm/models/script.h"
#include "tpgm/models/zero_shot.h"

namespace tpgm::tools {
namespace {

struct Arguments {
  std::string model, checkpoint, head, where, output, csv, class_list, device = "cpu";
  std::string classes = "all", decode = "exact", interpolation = "bicubic";
  std::vector<std::string> domains;
  std::vector<double> mean, std;
  double crop_pct = 0;
  LoaderArguments loader;
  bool features = false, amp = false, json = false;
};

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
  if (!args.head.empty()) {  // its classes have names: folders, with spaces for underscores
    auto names = load_zero_shot(args.head).class_names;
    for (const auto& folder : data.classes()) {
      std::string name = folder;
      std::replace(name.begin(), name.end(), '_', ' ');
      const auto found = std::find(names.begin(), names.end(), name);
      if (found != names.end()) *found = folder;
    }
    const bool all = std::all_of(data.classes().begin(), data.classes().end(), [&](const auto& folder) {
      return std::find(names.begin(), names.end(), folder) != names.end();
    });
    if (all) return Dataset(args.where, DatasetOptions().classes(names));
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
  Predictor(const Arguments& args, const LoadedClassifier& loaded)
      : args_(args), model_(*loaded.model), device_(args.device) {
    const std::string& name = loaded.metadata.at("tpgm.model");
    const Family family = is_script(name) ? Family::kResNet : parse_model(name).family;
    const Normalization usual = normalization(family);
    view_.image_size(model_.backbone->image_size())
        .crop_pct(args.crop_pct > 0 ? args.crop_pct
                  : is_clip(family) ? 1
                                    : 0.875)
        .decode(parse_decode(args.decode))
        .interpolation(parse_interpolation(args.interpolation));
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
        const auto out = args_.features ? model_.features(batch->images) : model_.forward(batch->images);
        rows.push_back(out.to(at::kCPU, at::kFloat));
        labels.push_back(batch->labels.to(at::kCPU));
      }
      result.indices.insert(result.indices.end(), batch->indices.begin(), batch->indices.end());
      progress.add(batch->indices.size());
    }
    for (const auto& bad : loader.skipped())
      say(fmt::format("tpgm predict: skipped '{}': {}\n", bad.place, bad.reason));
    skipped += static_cast<int64_t>(loader.skipped().size());
    TORCH_CHECK(!rows.empty(), "[predict] no picture of '", part->title(), "' could be read");
    result.rows = at::cat(rows);
    result.labels = at::cat(labels);
    if (!args_.features) score(result);
    return result;
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

void write_csv(AtomicFile& file, const Dataset& data, const std::vector<Predictions>& all, bool features) {
  std::string text = features ? "part,file,label\n" : "part,file,label,prediction\n";
  for (const auto& each : all) {
    for (size_t i = 0; i < each.indices.size(); ++i) {
      text +=
          fmt::format("{},{},{}", csv_field(each.part->title()), csv_field(each.part->name(each.indices[i])),
                      class_text(data.classes(), each.part->label(each.indices[i])));
      text += features ? "\n" : "," + class_text(data.classes(), each.predicted[i]) + "\n";
    }
  }
  file.write(text.data(), text.size());
}

double accuracy(const Predictions& each) {
  return 100.0 * static_cast<double>(each.right) / static_cast<double>(each.labelled);
}

void print(const Arguments& args, const std::vector<Predictions>& all, int64_t skipped) {
  if (args.json) {
    auto json = nlohmann::ordered_json{{"output", args.output},
                                       {"csv", args.csv},
                                       {"skipped", skipped},
                                       {"parts", nlohmann::ordered_json::array()}};
    for (const auto& each : all) {
      nlohmann::ordered_json part{{"name", each.part->title()}, {"pictures", each.indices.size()}};
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
  fmt::print("{}\n{}\n", args.output, args.csv);
  for (const auto& each : all) {
    fmt::print("{}: {}, {} {}", each.part->title(), pictures_text(each.indices.size()), each.rows.size(1),
               args.features ? "features" : "logits");
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
  } else if (args.features) {
    options.head(Head::kFresh).classifier(ClassifierOptions().num_classes(1));  // which nobody asks
  }
  auto loaded = load_classifier(args.model, args.checkpoint, options);
  for (const auto& note : loaded.notes) say(fmt::format("tpgm predict: '{}': {}\n", args.checkpoint, note));
  return loaded;
}

int predict(Arguments args) {
  check_device("predict", args.device);
  if (args.checkpoint.empty() && !is_script(args.model))
    throw UsageError("--checkpoint is required, unless --model is a script");
  if (args.csv.empty()) args.csv = std::filesystem::path(args.output).replace_extension(".csv").string();
  AtomicFile(args.output, "predict");  // throws now, not after the work, if it could not be written
  AtomicFile csv(args.csv, "predict");
  const auto loaded = load(args);
  const Dataset data = open_data(args, loaded.model->num_classes());
  print_notes("predict", data);
  const auto parts = parts_of(data, args.domains, Role::kTest);

  size_t pictures = 0;
  for (const auto& part : parts) pictures += static_cast<size_t>(part->size());
  Predictor predictor(args, loaded);
  std::vector<Predictions> all;
  {
    Progress progress("tpgm predict", pictures, pictures_text);
    for (const auto& part : parts) all.push_back(predictor.run(part, progress));
  }
  std::vector<at::Tensor> rows, labels;
  for (const auto& each : all) {
    rows.push_back(each.rows);
    labels.push_back(each.labels);
  }
  StateDict tensors("Tensor");
  tensors.insert(args.features ? "features" : "logits", at::cat(rows));
  tensors.insert("labels", at::cat(labels));
  Metadata metadata = {{"tpgm.model", loaded.metadata.at("tpgm.model")}};
  if (!data.classes().empty())
    metadata["tpgm.classes"] =
        nlohmann::json(data.classes()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  save_safetensors(tensors, args.output, metadata);
  write_csv(csv, data, all, args.features);
  csv.commit();
  print(args, all, predictor.skipped);
  return 0;
}

}  // namespace

Run configure_predict(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  app.add_option("--checkpoint", args->checkpoint, "The weights: a file or a folder, of any layout");
  app.add_option(
      "--model", args->model,
      "The model, as 'tpgm list models' calls it, or script:FILE; default: as the checkpoint says");
  app.add_option("--head", args->head, "A head made by 'tpgm zeroshot'; default: the checkpoint's own");
  app.add_option("--data-dir", args->where,
                 "The pictures, as 'tpgm data check' takes them; those in one folder need no label")
      ->required();
  app.add_option("-o,--output", args->output,
                 "The .safetensors file to write: logits (or features) [pictures, n] and labels [pictures]")
      ->required();
  app.add_option("--csv", args->csv,
                 "Part, file, label and prediction of each row; default: the output's name with .csv");
  app.add_option("--domains", args->domains, "Only these parts: real,sketch or real/test; default: all")
      ->delimiter(',');
  app.add_flag("--features", args->features, "What the head sees, in place of logits; needs no head");
  app.add_option(
         "--classes", args->classes,
         "Score over all classes of the head, or over the subset that occurs in the part (ImageNet-A, -R)")
      ->check(CLI::IsMember({"all", "subset"}));
  app.add_option("--class-list", args->class_list,
                 "The head's classes in order: folder names, one a line, or a folder of class folders; "
                 "default: the data's");
  app.add_option("--decode", args->decode, "exact (Pillow's pixels) or fast (DCT scaling)")
      ->check(parses(parse_decode));
  app.add_option("--interpolation", args->interpolation, "bicubic or bilinear")
      ->check(parses(parse_interpolation));
  app.add_option(
         "--crop-pct", args->crop_pct,
         "Part of the resized picture's shorter side that is kept; default: 1 for CLIP, 0.875 for others")
      ->check(CLI::PositiveNumber);
  app.add_option("--mean", args->mean, "Of the pixels in 0..1; default: CLIP's or ImageNet's")
      ->delimiter(',');
  app.add_option("--std", args->std, "Of the pixels in 0..1; default: CLIP's or ImageNet's")->delimiter(',');
  args->loader.add_to(app);
  app.add_option("--device", args->device, "cpu, cuda or cuda:N");
  app.add_flag("--amp", args->amp, "Compute in bf16 where that is safe");
  app.add_flag("--json", args->json, "The summary for a program to read");
  return [args] { return predict(*args); };
}

}  // namespace tpgm::tools

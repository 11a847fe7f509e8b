// `tpgm predict`: logits or features of images.
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/setting_flags.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/core/device.h"
#include "tpgm/io/file.h"
#include "tpgm/io/metadata.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"
#include "tpgm/study/predict.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/train/image_setup.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

struct PredictArguments {
  std::string checkpoint, head, where, output, csv;
  std::vector<std::string> domains;
  SettingFlags flags;
  bool features = false, json = false;
};

void print(const PredictArguments& args, const std::vector<Predictions>& all, size_t skipped) {
  if (args.json) {
    auto json = nlohmann::ordered_json{{"output", printable(args.output, kMaxPath)},
                                       {"csv", printable(args.csv, kMaxPath)},
                                       {"skipped", skipped},
                                       {"parts", nlohmann::ordered_json::array()}};
    for (const auto& each : all) {
      nlohmann::ordered_json part{{"name", printable(each.part->title())}, {"pictures", each.indices.size()}};
      if (each.labelled > 0 && !args.features) {
        part["accuracy"] = each.accuracy();
        part["classes_scored"] = each.scored_classes();
        part["classes"] = each.rows.size(1);
      }
      json["parts"].push_back(std::move(part));
    }
    fmt::print("{}\n", json.dump(2));
    return;
  }
  for (const auto& each : all) {
    fmt::print("{}: {}, {} {}", printable(each.part->title()), images_text(each.indices.size()),
               each.rows.size(1), args.features ? "features" : "logits");
    if (each.labelled > 0 && !args.features) {
      fmt::print(", accuracy {:.2f} % over {} classes", each.accuracy(),
                 each.scored.empty()
                     ? fmt::format("all {}", each.rows.size(1))
                     : fmt::format("the {} that occur of {}", each.scored.size(), each.rows.size(1)));
    }
    fmt::print("\n");
  }
  if (skipped > 0) fmt::print("{} skipped\n", images_text(skipped));
}

std::string text_of(const Images& images, const TrainOptions& options) {
  const auto view = view_of(images);
  return fmt::format("{} pixels, crop_pct {:.4g}, {}, decode {}, mean {}, std {}", images.eval.image_size(),
                     *view.crop_pct, to_text(*view.interpolation), to_text(options.decode),
                     fmt::join(view.mean, " "), fmt::join(view.std, " "));
}

void check_usage(PredictArguments& args, const TrainOptions& options) {
  if (args.checkpoint.empty() && !is_script(options.model))
    throw UsageError("--checkpoint is required, unless --model is a script");
  if (args.csv.empty()) args.csv = fs::path(args.output).replace_extension(".csv").string();
  if (fs::path(args.csv).lexically_normal() == fs::path(args.output).lexically_normal())
    throw UsageError("--csv and --output are the same file");
  if (args.features && options.classes == ScoredClasses::kSubset)
    throw UsageError("--classes subset scores logits; --features has none");
}

void save(const PredictArguments& args, const std::vector<Predictions>& all, const Metadata& metadata) {
  std::vector<at::Tensor> rows, labels;
  for (const auto& each : all) {
    rows.push_back(each.rows);
    labels.push_back(each.labels);
  }
  NamedTensors tensors("Tensor");
  tensors.insert(args.features ? "features" : "logits", at::cat(rows));
  tensors.insert("labels", at::cat(labels));
  save_safetensors(tensors, args.output, metadata);
}

int run_predict(PredictArguments args) {
  const auto options = make_options(args.flags.given());
  check_usage(args, options);
  const auto device = find_device(options.device);
  AtomicFile(args.output);  // throws before the work if it cannot be written
  AtomicFile csv(args.csv);
  const auto note = [](const std::string& text) { say_line("predict", text); };
  // A head that is given replaces the checkpoint's own.
  const auto use = args.features ? HeadUse::kNever : HeadUse::kAlways;
  const auto given = open_classifier(options.model, args.checkpoint, args.head, note, use);
  const Dataset data = open_for(given, args.where, options.class_list, args.features, note);
  print_notes("predict", data);
  const auto parts = parts_of(data, args.domains);

  Classifier& model = *given.loaded.model;
  model.to(device);
  to_channels_last(model);
  const auto images = make_images(options, model, given.loaded.metadata, device);
  std::vector<Predictions> all;
  size_t skipped = 0;
  {
    Progress progress("tpgm predict", count_images(parts), images_text);
    PredictOptions predict_options{args.features, options.amp, options.classes == ScoredClasses::kSubset,
                                   progress.callback()};
    for (const auto& part : parts) {
      Loader loader(all_of(part), images.eval, LoaderOptions(images.loader).batch_size(options.batch_size));
      auto predictions = predict(model, part, loader, predict_options);
      if (predictions.rows.defined()) all.push_back(std::move(predictions));
      for (const auto& bad : loader.skipped())
        note(
            fmt::format("skipped '{}': {}", printable(bad.place, kMaxPath), printable(bad.reason, kMaxPath)));
      skipped += loader.skipped().size();
    }
  }
  TORCH_CHECK(!all.empty(), "[predict] no image of '", args.where, "' could be read");
  // Predictions for images without labels get the class names of the head.
  auto classes = data.classes();
  if (classes.empty()) classes = given.head.empty() ? given.classes : given.loaded.class_names;
  Metadata metadata;
  keys::kModel.copy(given.loaded.metadata, metadata);
  keys::kView.set(metadata, view_of(images));
  if (!classes.empty()) keys::kClasses.set(metadata, classes);
  save(args, all, metadata);
  const auto text = to_csv(all, classes);
  csv.write(text.data(), text.size());
  csv.commit();
  if (!args.json) fmt::print("{}\n{}\npreprocessing: {}\n", args.output, args.csv, text_of(images, options));
  print(args, all, skipped);
  return 0;
}

}  // namespace

Run configure_predict(CLI::App& app) {
  auto args = std::make_shared<PredictArguments>();
  auto& flags = args->flags;
  app.add_option("--checkpoint", args->checkpoint,
                 "Checkpoint: a file, folder or run of any layout; required unless --model is a script");
  flags.add(app, "--model");
  app.add_option("--head", args->head, "Head: a file of 'tpgm zeroshot'; default: the checkpoint's own");
  app.add_option("--data-dir", args->where,
                 "Data set, as for 'tpgm data check', or a folder of images without labels")
      ->required();
  app.add_option("-o,--output", args->output,
                 "Output: a .safetensors file with logits (or features) [images, n] and labels [images]")
      ->required();
  app.add_option(
      "--csv", args->csv,
      "CSV file to write: part, file, label and prediction of each image; default: the output's name with "
      ".csv");
  app.add_option("--domains", args->domains,
                 "Domains with all their splits, or single splits of them (real,sketch/test); default: all")
      ->delimiter(',');
  app.add_flag("--features", args->features,
               "Write the features that the head receives, instead of logits; no head is needed");
  flags.add(app, "--classes",
            "Classes of the head to score over: all, or subset (those that occur in each part, as for "
            "ImageNet-A, -R)");
  flags.add(
      app, "--class-list",
      "Classes in the order of the head: a file with one per line, or a folder of class folders; default: "
      "the checkpoint's own, or the data's");
  flags.add_images(app);
  flags.add(app, "--cache");
  flags.add(app, "-b,--batch-size", "Batch size");
  flags.add(app, "--device");
  flags.add(app, "--amp", "Use AMP: compute in bf16 where that is safe; weights stay fp32");
  app.add_flag("--json", args->json, "Print the summary as JSON");
  return [args] { return run_predict(*args); };
}

}  // namespace tpgm::tools

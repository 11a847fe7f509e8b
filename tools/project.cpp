// `tpgm project`: anyone's pre-trained and fine-tuned checkpoints into one, by radii learned on held-out
// data.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "tools/classifier.h"
#include "tools/data.h"
#include "tools/progress.h"
#include "tools/setting_flags.h"
#include "tools/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/data/loader.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/models/script.h"
#include "tpgm/nn/layers.h"
#include "tpgm/nn/precision.h"
#include "tpgm/report/table.h"
#include "tpgm/train/setup.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostOutputs = 200;  // each is an open file

struct Arguments {
  std::string anchor, checkpoint, head, where, part, output, mu = "0";
  std::string norm = "l2", init = "half", scale = "absolute";
  int64_t radius_steps = TpgmOptions().every(kEnd).radius_steps_or_default(), radius_batch_size = 64;
  double radius_lr = 1e-2, tv = 0;
  std::vector<std::string> exclude;
  SettingFlags flags;
  bool json = false;
};

std::vector<double> parse_mu(const std::string& text) {
  std::vector<double> values;
  try {
    from_text("[project] --mu", text, values);
  } catch (const c10::Error&) {
    values.clear();
  }
  const std::set<double> different(values.begin(), values.end());
  const bool good =
      !values.empty() && values.size() <= kMostOutputs && different.size() == values.size() &&
      std::all_of(values.begin(), values.end(), [](double mu) { return mu >= 0 && mu < 1e300; });
  if (!good) {
    throw std::invalid_argument(
        fmt::format("'{}': expected different numbers of 0 or more, separated by commas: 4e-3,1e-3,0", text));
  }
  return values;
}

// A word of an enumeration; throws std::invalid_argument.
template <class T>
T parse_word(const std::string& text) {
  T value{};
  try {
    from_text("", text, value);
  } catch (const c10::Error&) {
    throw std::invalid_argument(fmt::format("must be {}, not '{}'", type_name<T>(), text));
  }
  return value;
}

// One file for each μ.
std::vector<fs::path> outputs_of(const std::string& output, const std::vector<double>& values) {
  const bool folder = output.ends_with('/') || is_folder(output);
  const size_t place = output.find("{mu}");
  std::vector<fs::path> files;
  for (const double mu : values) {
    const std::string text = fmt::format("{}", mu);
    if (place != std::string::npos) {
      files.emplace_back(std::string(output).replace(place, 4, text));
    } else if (values.size() == 1) {
      files.push_back(folder ? fs::path(output) / "model.safetensors" : fs::path(output));
    } else if (folder) {
      files.push_back(fs::path(output) / fmt::format("mu={}.safetensors", text));
    } else {
      const fs::path stem = fs::path(output).extension() == ".safetensors"
                                ? fs::path(output).replace_extension()
                                : fs::path(output);
      files.emplace_back(fmt::format("{}-mu={}.safetensors", stem.string(), text));
    }
  }
  return files;
}

// The part with that name; or the only one; or the one for the purpose.
Dataset::Part radius_part(const Dataset& data, const std::string& name) {
  if (!name.empty()) return data.part(name, Role::kTrain);
  if (data.parts().size() == 1) return data.parts().front();
  std::vector<Dataset::Part> found;
  for (const auto& part : data.parts()) {
    if (part->split == "radius") found.push_back(part);
  }
  if (found.size() == 1) return found.front();
  TORCH_CHECK(false, "[project] '", data.where(), "' has the parts ",
              fmt::format("{}", fmt::join(data.titles(), ", ")), "; say which has radius data with --part");
}

/// Batches of radius data, one epoch after another.
class RadiusBatches {
 public:
  RadiusBatches(const SampleSubset& subset, const Pictures& pictures, int64_t batch_size)
      : loader_(subset, pictures.eval,
                LoaderOptions(pictures.loader)
                    .batch_size(std::min(batch_size, subset.size()))
                    .shuffle(true)
                    .drop_last(true)) {}

  void restart() { loader_.start(epoch_ = 0); }

  Batch next() {
    for (int64_t empty = 0; empty <= loader_.batches();) {
      auto batch = loader_.next();
      if (!batch) {
        loader_.start(++epoch_);
      } else if (batch->indices.empty()) {
        ++empty;
      } else {
        return *std::move(batch);
      }
    }
    TORCH_CHECK(false, "[project] no picture of the radius data could be read");
  }

  const std::vector<BadImage>& skipped() const { return loader_.skipped(); }

 private:
  Loader loader_;
  int64_t epoch_ = 0;
};

// The pre-trained values of the model's parameters. A head that has none, or of other classes, is left out.
NamedTensors load_anchor(const Arguments& args, const GivenClassifier& finetuned,
                         std::vector<std::string>& exclude) {
  const std::string model = keys::kModel.at(finetuned.loaded.metadata);
  const auto note = [&](const std::string& text) {
    say(fmt::format("tpgm project: '{}': {}\n", args.anchor, text));
  };
  LoadOptions options;
  const bool own = has_head(model, args.anchor);
  if (!own && !args.head.empty()) {
    options.head(Head::kZeroShot).head_file(args.head);
  } else if (!own) {
    options.head(Head::kFresh).classifier(ClassifierOptions().num_classes(1));
  }
  const auto loaded = load_classifier(model, args.anchor, options);
  for (const auto& text : loaded.notes) note(text);
  NamedTensors anchor;
  for (const auto& item : loaded.model->named_parameters()) {
    if (item.key().starts_with("backbone.") || own || !args.head.empty())
      anchor.insert(item.key(), item.value().detach());
  }
  const auto& head = *finetuned.loaded.model->head;
  const auto* weight = anchor.find("head.weight");
  if (!weight || weight->sizes() != head.weight.sizes()) {
    note(!weight ? "has no head, so the fine-tuned one stays as it is"
                 : fmt::format("has a head of {} classes, not {}, so the fine-tuned one stays as it is",
                               weight->size(0), head.weight.size(0)));
    exclude.emplace_back("head.*");
  } else if (const auto classes =
                 own ? keys::kClasses.of(Checkpoint(args.anchor).metadata()) : std::vector<std::string>();
             !classes.empty() && !finetuned.classes.empty() && classes != finetuned.classes) {
    note("has a head of other classes, or in another order, so the fine-tuned one stays as it is");
    exclude.emplace_back("head.*");
  } else if (head.bias.defined() && !anchor.contains("head.bias")) {
    note("has a head without a bias, so the fine-tuned bias stays as it is");
    exclude.emplace_back("head.bias");
  }
  return anchor;
}

std::vector<double> distances(const Displacements& displacements) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < displacements.tensors().size(); ++i) {
    const at::Tensor& tensor = displacements.tensors()[i];
    all.push_back((tensor - displacements.anchors()[i].to(tensor.device())).norm(at::Scalar(2), at::kDouble));
  }
  const at::Tensor values = at::stack(all).cpu();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

/// Ratios and distances of some tensors together.
struct Block {
  std::string name;
  int64_t tensors = 0;
  double ratio = 0;              // mean
  double before = 0, after = 0;  // Frobenius norms of the displacement

  void add(double tensor_ratio, double tensor_before, double tensor_after) {
    ratio = (ratio * static_cast<double>(tensors) + tensor_ratio) / static_cast<double>(tensors + 1);
    ++tensors;
    before = std::hypot(before, tensor_before);
    after = std::hypot(after, tensor_after);
  }
};

/// What one μ came to.
struct Result {
  double mu = 0, first_loss = 0, last_loss = 0;
  torch::OrderedDict<std::string, double> ratios, radii;
  std::vector<Block> blocks;
  Block all{"all"};
};

// Of the tenth of the losses at either end.
std::pair<double, double> ends_of(const std::vector<at::Tensor>& losses) {
  if (losses.empty()) return {NAN, NAN};
  const at::Tensor all = at::stack(losses).to(at::kCPU, at::kDouble);
  const int64_t tenth = std::max<int64_t>(1, all.size(0) / 10);
  return {all.slice(0, 0, tenth).mean().item<double>(), all.slice(0, -tenth).mean().item<double>()};
}

/// Steps so far, their loss and the time left, of all μ together.
class Steps {
 public:
  explicit Steps(int64_t total) : total_(total) {}

  void add(double mu, const at::Tensor& loss) {
    ++done_;
    if (!line_.due()) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double left = seconds / static_cast<double>(done_) * static_cast<double>(total_ - done_);
    line_.show(fmt::format("tpgm project: step {} of {}, mu {}, loss {:.4f}, {} left", done_, total_, mu,
                           loss.item<double>(), duration_text(left)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Progress line_;
  int64_t total_, done_ = 0;
  Clock::time_point begin_ = Clock::now();
};

Result learn(Classifier& model, const NamedTensors& anchor, const TpgmOptions& options, bool amp,
             RadiusBatches& batches, Steps& steps) {
  Result result;
  result.mu = options.mu();
  Tpgm tpgm(model, anchor, options);
  if (amp) tpgm.read_in_bfloat16(matrix_weights(model));
  const auto before = distances(tpgm.displacements());
  std::vector<at::Tensor> losses;
  batches.restart();
  tpgm.finish([&] {
    const Batch batch = batches.next();
    at::Tensor logits;
    {
      std::optional<Autocast> autocast;
      if (amp) autocast.emplace(batch.images.device().type());
      logits = model.forward(batch.images);
    }
    const at::Tensor loss = at::cross_entropy_loss(logits.to(at::kFloat), batch.labels);
    losses.push_back(loss.detach());
    steps.add(options.mu(), losses.back());
    return loss;
  });
  const auto after = distances(tpgm.displacements());
  std::tie(result.first_loss, result.last_loss) = ends_of(losses);
  result.ratios = tpgm.ratios();
  result.radii = tpgm.radii();
  for (size_t i = 0; i < before.size(); ++i) {
    const auto& item = result.ratios[i];
    const auto name = block_name(item.key());
    auto block = std::find_if(result.blocks.begin(), result.blocks.end(),
                              [&](const Block& each) { return each.name == name; });
    if (block == result.blocks.end()) block = result.blocks.insert(block, Block{name});
    block->add(item.value(), before[i], after[i]);
    result.all.add(item.value(), before[i], after[i]);
  }
  return result;
}

/// The files, which appear together at the end.
class Outputs {
 public:
  Outputs(const std::vector<fs::path>& files, const NamedTensors& state, const Metadata& metadata,
          const std::vector<std::string>& commands) {
    std::vector<TensorSpec> specs;
    for (const auto& item : state)
      specs.push_back({item.key(), item.value().scalar_type(), item.value().sizes().vec()});
    for (size_t i = 0; i < files.size(); ++i) {
      Metadata own = metadata;
      keys::kCommand.set(own, commands[i]);
      writers_.push_back(std::make_unique<SafetensorsWriter>(files[i], specs, own));
    }
  }

  void write(size_t which, const NamedTensors& state) {
    size_t i = 0;
    for (const auto& item : state) {
      const at::Tensor tensor = item.value().cpu().contiguous();
      writers_[which]->write(i++, 0, tensor.const_data_ptr(), tensor.nbytes());
    }
    writers_[which]->prepare();
  }

  void commit() {
    for (auto& writer : writers_) writer->commit();
  }

 private:
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
};

// How each file came about, without paths or the machine's options.
std::string command_text(const Arguments& args, const Checkpoint& anchor, const Checkpoint& finetuned,
                         double mu) {
  std::string text = fmt::format(
      "tpgm project --anchor {} --checkpoint {} --radius-data '{}' --mu {} --norm {} --radius-steps {} "
      "--radius-lr {} --radius-batch-size {} --init {} --scale {} --tv {}",
      name_of(anchor), name_of(finetuned), printable(fs::path(args.where).filename().string(), 255), mu,
      args.norm, args.radius_steps, args.radius_lr, args.radius_batch_size, args.init, args.scale, args.tv);
  if (!args.part.empty()) text += fmt::format(" --part '{}'", args.part);
  for (const auto& glob : args.exclude) text += fmt::format(" --exclude '{}'", glob);
  const auto given = args.flags.given();
  for (const char* key : {"seed", "crop-pct", "mean", "std", "interpolation", "decode"}) {
    if (given.contains(key)) text += fmt::format(" --{} {}", key, given.at(key));
  }
  return text;
}

void print(const Arguments& args, const std::vector<Result>& results, const std::vector<fs::path>& files,
           const Dataset::Part& part, size_t skipped) {
  if (args.json) {
    nlohmann::ordered_json json{{"radius_data", printable(part->title())},
                                {"pictures", part->size()},
                                {"skipped", skipped},
                                {"radius_steps", args.radius_steps},
                                {"outputs", nlohmann::ordered_json::array()}};
    for (size_t k = 0; k < results.size(); ++k) {
      const Result& result = results[k];
      nlohmann::ordered_json each{{"mu", result.mu},
                                  {"file", printable(files[k].string(), kMaxPath)},
                                  {"first_loss", result.first_loss},
                                  {"last_loss", result.last_loss},
                                  {"distance_before", result.all.before},
                                  {"distance_after", result.all.after},
                                  {"blocks", nlohmann::ordered_json::array()},
                                  {"ratios", nlohmann::ordered_json::object()},
                                  {"radii", nlohmann::ordered_json::object()}};
      for (const Block& block : result.blocks) {
        each["blocks"].push_back({{"name", printable(block.name, 255)},
                                  {"tensors", block.tensors},
                                  {"ratio", block.ratio},
                                  {"distance_before", block.before},
                                  {"distance_after", block.after}});
      }
      for (const auto& item : result.ratios) each["ratios"][printable(item.key(), 255)] = item.value();
      for (const auto& item : result.radii) each["radii"][printable(item.key(), 255)] = item.value();
      json["outputs"].push_back(std::move(each));
    }
    fmt::print("{}\n", json.dump(2));
    return;
  }
  Table table;
  table.columns = {"block", "tensors", "before"};
  table.groups = {{"", 1}, {"distance", 1}};
  const auto row_of = [&](auto&& block_of) {
    const Block& first = block_of(results.front());
    std::vector<std::string> row = {first.name, fmt::format("{}", first.tensors),
                                    fmt::format("{:.4g}", first.before)};
    for (const Result& result : results) {
      row.push_back(fmt::format("{:.3f}", block_of(result).ratio));
      row.push_back(fmt::format("{:.4g}", block_of(result).after));
    }
    return row;
  };
  for (const Result& result : results) {
    table.columns.insert(table.columns.end(), {"ratio", "after"});
    table.groups.emplace_back(fmt::format("mu {}", result.mu), 2);
  }
  for (size_t b = 0; b < results.front().blocks.size(); ++b)
    table.rows.push_back(row_of([b](const Result& result) -> const Block& { return result.blocks[b]; }));
  table.rules = {table.rows.size()};
  table.rows.push_back(row_of([](const Result& result) -> const Block& { return result.all; }));
  fmt::print("{}\n", to_text(table));
  for (size_t k = 0; k < results.size(); ++k) {
    fmt::print("{}\n", files[k].string());
    if (args.radius_steps > 0)
      fmt::print("mu {}: loss {:.4f} at first, {:.4f} in the end, on {} of {}\n", results[k].mu,
                 results[k].first_loss, results[k].last_loss,
                 pictures_text(static_cast<size_t>(part->size())),
                 printable(part->title().empty() ? args.where : part->title(), kMaxPath));
  }
  if (skipped > 0) fmt::print("{} skipped\n", pictures_text(skipped));
  fmt::print("'tpgm convert --to' gives {} back in another library's names\n",
             files.size() == 1 ? "it" : "them");
}

TpgmOptions tpgm_options(const Arguments& args, const std::vector<std::string>& exclude) {
  return TpgmOptions()
      .every(kEnd)
      .norm(parse_word<Norm>(args.norm))
      .radius_steps(args.radius_steps)
      .radius_lr(args.radius_lr)
      .init(parse_word<RadiusInit>(args.init))
      .scale(parse_word<RadiusScale>(args.scale))
      .tv(args.tv)
      .exclude(exclude);
}

Dataset::Part open_radius_data(const Arguments& args, const TrainOptions& options,
                               const GivenClassifier& finetuned, std::vector<std::string>& classes) {
  const Dataset named(args.where);
  print_notes("project", named);
  classes = classes_for("project", finetuned, options.class_list, named);
  const Dataset data(args.where, DatasetOptions().classes(classes));
  const auto part = radius_part(data, args.part);
  for (int64_t i = 0; i < part->size(); ++i)
    TORCH_CHECK(part->label(i) >= 0, "[project] '", printable(part->place(i), kMaxPath),
                "' has no label; radii are learned from labelled pictures");
  return part;
}

int project(const Arguments& args) {
  const TrainOptions options = make_options(args.flags.given());
  const auto device = find_device(options.device);
  const auto values = parse_mu(args.mu);
  const auto files = outputs_of(args.output, values);

  const auto finetuned = open_classifier("project", options.model, args.checkpoint, args.head);
  Classifier& model = *finetuned.loaded.model;
  auto exclude = args.exclude;
  const NamedTensors anchor = load_anchor(args, finetuned, exclude);
  std::vector<std::string> classes;
  const auto part = open_radius_data(args, options, finetuned, classes);

  model.to(device);
  to_channels_last(model);
  const auto pictures = make_pictures(options, model, finetuned.loaded.metadata, device);
  RadiusBatches batches(all_of(part), pictures, args.radius_batch_size);
  NamedTensors start("Tensor");  // what every μ begins with
  for (const auto& item : state_dict(model)) start.insert(item.key(), item.value().cpu().clone());

  const Checkpoint pre(args.anchor), ft(args.checkpoint);
  Provenance provenance({&pre, &ft});
  provenance.start();
  Metadata metadata = provenance.wait();
  for (const auto& [key, value] : finetuned.loaded.metadata) metadata[key] = value;
  keys::kClasses.set(metadata, classes);
  std::vector<std::string> commands;
  commands.reserve(values.size());
  for (const double mu : values) commands.push_back(command_text(args, pre, ft, mu));

  std::vector<Result> results;
  const auto work = [&] {
    Outputs outputs(files, start, metadata, commands);
    {
      Steps steps(static_cast<int64_t>(values.size()) * args.radius_steps);
      for (size_t k = 0; k < values.size(); ++k) {
        load_state_dict(model, start);
        results.push_back(
            learn(model, anchor, tpgm_options(args, exclude).mu(values[k]), options.amp, batches, steps));
        outputs.write(k, state_dict(model));
      }
    }
    outputs.commit();
  };
  args.output.ends_with('/') ? with_folder(args.output, work) : work();
  for (const auto& bad : batches.skipped())
    say(fmt::format("tpgm project: skipped '{}': {}\n", printable(bad.place, kMaxPath),
                    printable(bad.reason, kMaxPath)));
  print(args, results, files, part, batches.skipped().size());
  return 0;
}

}  // namespace

Run configure_project(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  auto& flags = args->flags;
  app.add_option("--anchor", args->anchor, "Pre-trained checkpoint: a file, folder or run of any layout")
      ->required();
  app.add_option("--checkpoint", args->checkpoint, "Fine-tuned checkpoint, with its head")->required();
  app.add_option("--radius-data", args->where,
                 "Data set of images that neither model was trained on, as for 'tpgm data check'")
      ->required();
  app.add_option("-o,--output", args->output,
                 "Output .safetensors file; with several --mu, OUT-mu=0.001.safetensors and so on, or a name "
                 "with {mu} in place of the value")
      ->required();
  app.add_option("--part", args->part,
                 "Part of the radius data to use: a domain, or DOMAIN/SPLIT; default: the only part, or one "
                 "called radius, or train");
  app.add_option("--mu", args->mu,
                 "TPGM-C: weight of the squared radii in the radius loss; several values (4e-3,1e-3,0) give "
                 "one file each")
      ->check(parses(parse_mu));
  app.add_option("--norm", args->norm, "Distance from the anchor: l2, mars or mars-max")
      ->check(parses(parse_word<Norm>));
  app.add_option("--radius-steps", args->radius_steps, "Number of radius steps")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--radius-lr", args->radius_lr, "Learning rate of the radii (Adam)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--radius-batch-size", args->radius_batch_size, "Batch size of a radius step")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--init", args->init, "Initial radius: half of the distance (half), or 1e-8 (eps)")
      ->check(parses(parse_word<RadiusInit>));
  app.add_option("--scale", args->scale,
                 "Learn the radius itself (absolute), or its ratio to the distance (relative)")
      ->check(parses(parse_word<RadiusScale>));
  app.add_option("--tv", args->tv, "Weight of the total variation of the ratios within a block")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--exclude", args->exclude, "GLOB: parameters to keep as fine-tuned; may be repeated")
      ->allow_extra_args(false);
  flags.add(app, "--model");
  app.add_option("--head", args->head, "Head made by 'tpgm zeroshot', for checkpoints without one");
  flags.add(app, "--class-list",
            "Classes of the head in order: a file with one folder name per line, or a folder of class "
            "folders; default: as the checkpoint says, else the data's");
  flags.add(app, "--seed", "Random seed of the order of the radius data");
  flags.add_pictures(app);
  flags.add(app, "--cache");
  flags.add(app, "--device");
  flags.add(app, "--amp", "Use AMP: compute in bf16 where that is safe");
  app.add_flag("--json", args->json, "Print JSON, with the ratio of every tensor");
  return [args] { return project(*args); };
}

}  // namespace tpgm::tools

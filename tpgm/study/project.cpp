// Anchors, radius data, learning, and the files.
#include "tpgm/study/project.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/checkpoints/arithmetic.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/data/loader.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/layers.h"
#include "tpgm/nn/precision.h"
#include "tpgm/train/image_setup.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The part with that name; or the only one; or the one for the purpose.
Dataset::Part radius_part(const Dataset& data, const std::string& name) {
  if (!name.empty()) return data.part(name, Role::kTrain);
  if (data.parts().size() == 1) return data.parts().front();
  std::vector<Dataset::Part> found;
  for (const auto& part : data.parts()) {
    if (part->split == "radius") found.push_back(part);
  }
  if (found.size() == 1) return found.front();
  TORCH_CHECK(false, "'", data.where(), "' has the parts ", fmt::format("{}", fmt::join(data.titles(), ", ")),
              "; say which has radius data with `part`");
}

// Batches of radius data, one epoch after another.
class HeldOutBatches {
 public:
  HeldOutBatches(const SampleSubset& subset, const Images& images, int64_t batch_size)
      : loader_(subset, images.eval,
                LoaderOptions(images.loader)
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
    TORCH_CHECK(false, "[Projector::run] no image of the radius data could be read");
  }

  const std::vector<BadImage>& skipped() const { return loader_.skipped(); }

 private:
  Loader loader_;
  int64_t epoch_ = 0;
};

// The pre-trained values of the model's parameters, and the checkpoint that has them.
struct LoadedAnchor {
  NamedTensors tensors;
  Checkpoint checkpoint;
  ImageView view;
};

// A head that has no pre-trained values, or those of other classes, is left out.
LoadedAnchor load_anchor(const ProjectOptions& args, const GivenClassifier& finetuned,
                         std::vector<std::string>& exclude, const Say& say) {
  const std::string model = keys::kModel.at(finetuned.loaded.metadata);
  const auto note = [&](const std::string& text) {
    if (say) say(fmt::format("'{}': {}", args.anchor, text));
  };
  LoadOptions options;
  const bool own = has_head(model, args.anchor);
  if (!own && !args.head.empty()) {
    options.head(Head::kZeroShot).head_file(args.head);
  } else if (!own) {
    options.head(Head::kFresh).classifier(ClassifierOptions().num_classes(1));
  }
  const auto loaded = load_classifier(model, args.anchor, options);
  for (const auto& text : loaded.notes) {
    // The notes of the fine-tuned model name its script, which is this one.
    if (!is_script(model) || !text.starts_with("runs the TorchScript program")) note(text);
  }
  const ImageView view = keys::kView.of(loaded.metadata);
  NamedTensors anchor;
  for (const auto& item : loaded.model->named_parameters()) {
    const bool has_head = (own && !loaded.outputs_are_logits) || !args.head.empty();
    if (item.key().starts_with("backbone.") || has_head) anchor.insert(item.key(), item.value().detach());
  }
  if (finetuned.loaded.outputs_are_logits) return {anchor, *loaded.checkpoint, view};  // it has no head
  const auto& head = *finetuned.loaded.model->head;
  const auto* weight = anchor.find("head.weight");
  if (!weight || weight->sizes() != head.weight.sizes()) {
    note(!weight ? "has no head, so the fine-tuned one stays as it is"
                 : fmt::format("has a head of {} classes, not {}, so the fine-tuned one stays as it is",
                               weight->size(0), head.weight.size(0)));
    exclude.emplace_back("head.*");
  } else if (const auto classes =
                 own ? keys::kClasses.of(loaded.checkpoint->metadata()) : std::vector<std::string>();
             !classes.empty() && !finetuned.classes.empty() && classes != finetuned.classes) {
    note("has a head of other classes, or in another order, so the fine-tuned one stays as it is");
    exclude.emplace_back("head.*");
  } else if (head.bias.defined() && !anchor.contains("head.bias")) {
    note("has a head without a bias, so the fine-tuned bias stays as it is");
    exclude.emplace_back("head.bias");
  }
  return {anchor, *loaded.checkpoint, view};
}

std::vector<double> distances(const Displacements& displacements) {
  std::vector<double> all;
  for (size_t i = 0; i < displacements.tensors().size(); ++i)
    all.push_back(l2_distance(displacements.tensors()[i], displacements.anchors()[i]));
  return all;
}

// The means of the first and of the last tenth of the losses.
std::pair<double, double> ends_of(const std::vector<at::Tensor>& losses) {
  if (losses.empty()) return {NAN, NAN};
  const at::Tensor all = at::stack(losses).to(at::kCPU, at::kDouble);
  const int64_t tenth = std::max<int64_t>(1, all.size(0) / 10);
  return {all.slice(0, 0, tenth).mean().item<double>(), all.slice(0, -tenth).mean().item<double>()};
}

Projected learn(Classifier& model, const NamedTensors& anchor, const TpgmOptions& options, bool amp,
                HeldOutBatches& batches, const std::function<void(const at::Tensor&)>& progress) {
  Projected result;
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
    progress(losses.back());
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
                              [&](const ProjectedBlock& each) { return each.name == name; });
    if (block == result.blocks.end()) block = result.blocks.insert(block, ProjectedBlock{name});
    block->add(item.value(), before[i], after[i]);
    result.all.add(item.value(), before[i], after[i]);
  }
  return result;
}

// The files, which appear together at the end.
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

Dataset::Part open_radius_data(const ProjectOptions& args, const GivenClassifier& finetuned,
                               std::vector<std::string>& classes, const Say& note) {
  const Dataset named(args.radius_data);
  for (const auto& text : named.notes()) {
    if (note) note(fmt::format("'{}': {}", named.where(), text));
  }
  classes = classes_for(finetuned, args.options.class_list, named, note);
  const Dataset data = named.with_classes(classes);
  const auto part = radius_part(data, args.part);
  for (int64_t i = 0; i < part->size(); ++i)
    TORCH_CHECK(part->label(i) >= 0, "'", printable(part->place(i), kMaxPath),
                "' has no label; radii are learned from labeled images");
  return part;
}

}  // namespace

void ProjectedBlock::add(double tensor_ratio, double tensor_before, double tensor_after) {
  ratio = (ratio * static_cast<double>(tensors) + tensor_ratio) / static_cast<double>(tensors + 1);
  ++tensors;
  before = std::hypot(before, tensor_before);
  after = std::hypot(after, tensor_after);
}

double ProjectedBlock::kept() const { return before > 0 ? after / before : NAN; }

struct Projector::Impl {
  ProjectOptions options;
  GivenClassifier finetuned;
  NamedTensors anchor;
  Dataset::Part part;
  std::unique_ptr<HeldOutBatches> batches;
  NamedTensors start{"Tensor"};  // what every mu begins with
  Metadata metadata;

  Classifier& model() const { return *finetuned.loaded.model; }
};

Projector::Projector(ProjectOptions options, c10::Device device, const Say& note) try
    : impl_(std::make_unique<Impl>()) {
  auto& my = *impl_;
  my.finetuned = open_classifier(options.options.model, options.checkpoint, options.head, note);
  const auto& finetuned = my.finetuned.loaded.checkpoint;
  TORCH_CHECK(finetuned, "`checkpoint` is needed: the fine-tuned weights");
  auto exclude = options.tpgm.exclude();
  const auto anchor = load_anchor(options, my.finetuned, exclude, note);
  // Fine-tuned weights that say nothing of images get them as the anchor does.
  auto& metadata = my.finetuned.loaded.metadata;
  if (!keys::kView.in(metadata) && anchor.view != ImageView()) keys::kView.set(metadata, anchor.view);
  my.anchor = anchor.tensors;
  options.tpgm.every(kEnd).exclude(exclude);
  std::vector<std::string> classes;
  my.part = open_radius_data(options, my.finetuned, classes, note);
  my.model().to(device);
  to_channels_last(my.model());
  const auto images = make_images(options.options, my.model(), my.finetuned.loaded.metadata, device);
  my.batches = std::make_unique<HeldOutBatches>(all_of(my.part), images, options.radius_batch_size);
  for (const auto& item : state_dict(my.model())) my.start.insert(item.key(), item.value().cpu().clone());

  Provenance provenance({&anchor.checkpoint, &*finetuned});
  provenance.start();
  my.metadata = provenance.wait();
  for (const auto& [key, value] : my.finetuned.loaded.metadata) my.metadata[key] = value;
  keys::kClasses.set(my.metadata, classes);
  my.options = std::move(options);
} catch (...) {
  rethrow_from("Projector");
}

Projector::~Projector() = default;

const Dataset::Part& Projector::part() const { return impl_->part; }
const std::vector<BadImage>& Projector::skipped() const { return impl_->batches->skipped(); }

std::vector<Projected> Projector::run(const std::vector<fs::path>& files,
                                      const std::vector<std::string>& commands,
                                      const std::function<void(const ProjectProgress&)>& progress) {
  auto& my = *impl_;
  const auto& all = my.options.mu;
  Outputs outputs(files, my.start, my.metadata, commands);
  std::vector<Projected> results;
  ProjectProgress at;
  at.steps = static_cast<int64_t>(all.size()) * my.options.tpgm.radius_steps_or_default();
  for (size_t k = 0; k < all.size(); ++k) {
    load_state_dict(my.model(), my.start);
    at.mu = all[k];
    const auto told = [&](const at::Tensor& loss) {
      ++at.step;
      at.loss = loss;
      if (progress) progress(at);
    };
    results.push_back(learn(my.model(), my.anchor, TpgmOptions(my.options.tpgm).mu(all[k]),
                            my.options.options.amp, *my.batches, told));
    outputs.write(k, state_dict(my.model()));
  }
  outputs.commit();
  return results;
}

std::vector<fs::path> projected_files(const std::string& output, const std::vector<double>& values) {
  std::error_code error;
  const bool folder = output.ends_with('/') || fs::is_directory(output, error);
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

Table to_table(const std::vector<Projected>& all) {
  Table table;
  table.columns = {"block", "tensors", "before"};
  table.groups = {{"", 1}, {"distance", 1}};
  const auto row_of = [&](auto&& block_of) {
    const ProjectedBlock& first = block_of(all.front());
    std::vector<std::string> row = {first.name, fmt::format("{}", first.tensors),
                                    fmt::format("{:.4g}", first.before)};
    for (const Projected& result : all) {
      const ProjectedBlock& block = block_of(result);
      row.push_back(fmt::format("{:.4g}", block.after));
      row.push_back(block.before > 0 ? fmt::format("{:.3f}", block.kept()) : "–");
    }
    return row;
  };
  for (const Projected& result : all) {
    table.columns.insert(table.columns.end(), {"after", "ratio"});
    table.groups.emplace_back(fmt::format("mu {}", result.mu), 2);
  }
  for (size_t b = 0; b < all.front().blocks.size(); ++b)
    table.rows.push_back(
        row_of([b](const Projected& result) -> const ProjectedBlock& { return result.blocks[b]; }));
  table.rules = {table.rows.size()};
  table.rows.push_back(row_of([](const Projected& result) -> const ProjectedBlock& { return result.all; }));
  return table;
}

Json to_json(const Projected& result, const fs::path& file) {
  Json each{{"mu", result.mu},
            {"file", printable(file.string(), kMaxPath)},
            {"first_loss", result.first_loss},
            {"last_loss", result.last_loss},
            {"distance_before", result.all.before},
            {"distance_after", result.all.after},
            {"distance_ratio", result.all.kept()},
            {"blocks", Json::array()},
            {"ratios", Json::object()},
            {"radii", Json::object()}};
  for (const ProjectedBlock& block : result.blocks) {
    each["blocks"].push_back({{"name", printable(block.name, 255)},
                              {"tensors", block.tensors},
                              {"ratio", block.ratio},
                              {"distance_before", block.before},
                              {"distance_after", block.after},
                              {"distance_ratio", block.kept()}});
  }
  for (const auto& item : result.ratios) each["ratios"][printable(item.key(), 255)] = item.value();
  for (const auto& item : result.radii) each["radii"][printable(item.key(), 255)] = item.value();
  return each;
}

}  // namespace tpgm

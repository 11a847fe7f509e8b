#include "tpgm/study/predict.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tpgm/data/class_list.h"
#include "tpgm/nn/precision.h"
#include "tpgm/report/table.h"

namespace tpgm {
namespace {

std::vector<int64_t> classes_in(const Samples& part) {
  std::vector<int64_t> classes(part.labels().begin(), part.labels().end());
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  TORCH_CHECK(!classes.empty() && classes.front() >= 0, "[predict] `classes` subset: '", part.title(),
              "' has images without a label");
  return classes;
}

void score(Predictions& result, bool subset) {
  at::Tensor logits = result.rows;
  if (subset) {
    result.scored = classes_in(*result.part);
    logits = logits.index_select(1, at::tensor(result.scored));
  }
  const at::Tensor best = logits.argmax(1);
  const auto* best_of = best.const_data_ptr<int64_t>();
  const auto* label_of = result.labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < best.size(0); ++i) {
    result.predicted.push_back(subset ? result.scored[static_cast<size_t>(best_of[i])] : best_of[i]);
    if (label_of[i] < 0) continue;
    ++result.labelled;
    if (result.predicted.back() == label_of[i]) ++result.correct;
  }
}

std::string class_text(const std::vector<std::string>& classes, int64_t label) {
  if (label < 0) return "";
  return label < static_cast<int64_t>(classes.size()) ? csv_field(classes[static_cast<size_t>(label)])
                                                      : std::to_string(label);
}

// Keys of two shards may be the same.
std::string place_text(const Samples& part, int64_t index) {
  return part.in_files() ? std::string(part.name(index)) : part.place(index);
}

}  // namespace

double Predictions::accuracy() const {
  return 100.0 * static_cast<double>(correct) / static_cast<double>(labelled);
}

int64_t Predictions::scored_classes() const {
  return scored.empty() ? rows.size(1) : static_cast<int64_t>(scored.size());
}

Predictions predict(Classifier& model, const Dataset::Part& part, Loader& loader,
                    const PredictOptions& options) {
  const c10::InferenceMode no_autograd;
  model.eval();
  Predictions result{part, {}, {}, {}, {}, {}, 0, 0};
  std::vector<at::Tensor> rows, labels;
  loader.start(0);
  while (const auto batch = loader.next()) {
    if (!batch->indices.empty()) {
      std::optional<Autocast> autocast;
      if (options.amp) autocast.emplace(batch->images.device().type());
      const at::Tensor out = options.features ? model.features(batch->images) : model.forward(batch->images);
      rows.push_back(out.to(at::kCPU, at::kFloat));
      labels.push_back(batch->labels.to(at::kCPU));
    }
    result.indices.insert(result.indices.end(), batch->indices.begin(), batch->indices.end());
    if (options.progress) options.progress(batch->indices.size());
  }
  if (rows.empty()) return result;
  result.rows = at::cat(rows);
  result.labels = at::cat(labels);
  if (!options.features) score(result, options.subset);
  return result;
}

Dataset open_for(const GivenClassifier& given, const std::string& data_dir, const std::string& class_list,
                 bool features, const Say& note) {
  if (features && !class_list.empty())
    return Dataset(data_dir, DatasetOptions().classes(load_class_list(class_list)));
  Dataset data(data_dir);
  if (features || (data.classes().empty() && class_list.empty())) return data;
  return data.with_classes(classes_for(given, class_list, data, note));
}

std::string to_csv(const std::vector<Predictions>& all, const std::vector<std::string>& classes) {
  const bool features = !all.empty() && all.front().predicted.empty();
  std::string text = features ? "part,file,label\n" : "part,file,label,prediction\n";
  for (const auto& each : all) {
    for (size_t i = 0; i < each.indices.size(); ++i) {
      text += fmt::format("{},{},{}", csv_field(each.part->title()),
                          csv_field(place_text(*each.part, each.indices[i])),
                          class_text(classes, each.part->label(each.indices[i])));
      text += features ? "\n" : fmt::format(",{}\n", class_text(classes, each.predicted[i]));
    }
  }
  return text;
}

}  // namespace tpgm

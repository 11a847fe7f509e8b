// Counts correct predictions on the device of the logits, and reads the counts after the last batch.
#include "tpgm/train/evaluate.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

#include "tpgm/base/untrusted.h"
#include "tpgm/core/module_view.h"
#include "tpgm/nn/precision.h"

namespace tpgm {
namespace {

constexpr const char* kCall = "evaluate";

// Those that occur, in order; throws for labels that the head does not have.
std::vector<int64_t> classes_in(const SampleSubset& subset, int64_t num_classes) {
  std::vector<bool> occurs(static_cast<size_t>(num_classes));
  for (const int64_t index : subset.indices) {
    const int64_t label = subset.samples->label(index);
    TORCH_CHECK(label < num_classes, "[", kCall, "] '", printable(subset.samples->place(index), kMaxPath),
                "' has label ", label, ", and the head ", num_classes,
                " classes: open the data with the classes that the head knows");
    if (label >= 0) occurs[static_cast<size_t>(label)] = true;
  }
  std::vector<int64_t> classes;
  for (size_t k = 0; k < occurs.size(); ++k) {
    if (occurs[k]) classes.push_back(static_cast<int64_t>(k));
  }
  TORCH_CHECK(!classes.empty(), "[", kCall, "] '", printable(subset.samples->title()),
              "' has no image with a label: there is nothing to score");
  return classes;
}

// Answers about the images `asked`, in the order of the subset.
at::Tensor in_order(const SampleSubset& subset, const std::vector<int64_t>& asked, const double* answers) {
  std::unordered_map<int64_t, double> answered;
  for (size_t i = 0; i < asked.size(); ++i) answered[asked[i]] = answers[i];
  at::Tensor result = at::full({subset.size()}, -1, at::kInt);
  auto* out = result.data_ptr<int32_t>();
  for (const int64_t index : subset.indices) {
    const auto found = answered.find(index);
    if (found != answered.end()) *out = static_cast<int32_t>(found->second);
    ++out;
  }
  return result;
}

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN()
                    : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double Accuracy::top1() const { return percent(correct, images); }
double Accuracy::top5() const { return percent(top5_correct, images); }

Accuracy evaluate(Classifier& model, Loader& loader, const EvaluateOptions& options) {
  const at::NoGradGuard no_grad;
  const EvalMode eval_mode(model);
  const SampleSubset& subset = loader.subset();
  const c10::Device device = model.parameters().front().device();
  const int64_t num_classes = model.num_classes();
  const auto occurring = classes_in(subset, num_classes);

  Accuracy result;
  result.class_images.resize(static_cast<size_t>(num_classes));
  result.scored_classes = options.subset ? static_cast<int64_t>(occurring.size()) : num_classes;
  const int64_t five = std::min<int64_t>(5, result.scored_classes);
  // The place of each class among those that are scored; the last entry, -1, is for images without a label.
  at::Tensor scored, places;
  if (options.subset) {
    scored = at::tensor(occurring);
    places = at::full({num_classes + 1}, -1, at::kLong);
    places.index_copy_(0, scored, at::arange(result.scored_classes));
    scored = scored.to(device);
    places = places.to(device);
  }
  // One row for "no label" behind the classes'.
  const at::Tensor correct = at::zeros({num_classes + 1}, at::TensorOptions(device).dtype(at::kLong));
  const at::Tensor top5_correct = at::zeros({num_classes + 1}, correct.options());
  const at::Tensor loss = at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  std::vector<at::Tensor> answers;  // of each batch, and which images they are about
  std::vector<int64_t> asked;

  loader.start(0);
  while (const auto batch = loader.next()) {
    if (!batch->indices.empty()) {
      at::Tensor logits;
      {
        std::optional<Autocast> autocast;
        if (options.amp) autocast.emplace(device.type());
        logits = model.forward(batch->images).to(at::kFloat);
      }
      at::Tensor targets = batch->labels;
      const at::Tensor rows = at::where(targets < 0, num_classes, targets);
      if (options.subset) {
        logits = logits.index_select(1, scored);
        targets = places.index_select(0, rows);
      }
      const at::Tensor answer = logits.argmax(1);
      const at::Tensor first = answer == targets;
      const at::Tensor best = std::get<1>(logits.topk(five, 1));
      // Among equal logits topk may choose others than argmax does.
      const at::Tensor among = (best == targets.unsqueeze(1)).any(1).logical_or_(first);
      correct.index_add_(0, rows, first.to(at::kLong));
      top5_correct.index_add_(0, rows, among.to(at::kLong));
      loss.add_(at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, /*ignore_index=*/-1));
      if (options.predictions) {
        answers.push_back(options.subset ? scored.index_select(0, answer) : answer);
        asked.insert(asked.end(), batch->indices.begin(), batch->indices.end());
      }
    }
    for (const int64_t index : batch->indices) {
      const int64_t label = subset.samples->label(index);
      if (label < 0) continue;
      ++result.images;
      ++result.class_images[static_cast<size_t>(label)];
    }
    if (options.progress) options.progress(batch->indices.size());
  }
  result.skipped = static_cast<int64_t>(loader.skipped().size());

  // All that is asked of the device, at once; counts of images and numbers of classes are exact in float64.
  std::vector<at::Tensor> parts = {correct.to(at::kDouble), top5_correct.to(at::kDouble), loss.reshape({1})};
  if (!answers.empty()) parts.push_back(at::cat(answers).to(at::kDouble));
  const at::Tensor counts = at::cat(parts).cpu();
  const auto* count = counts.const_data_ptr<double>();
  for (int64_t k = 0; k < num_classes; ++k) {
    result.class_correct.push_back(static_cast<int64_t>(count[k]));
    result.correct += result.class_correct.back();
    result.top5_correct += static_cast<int64_t>(count[num_classes + 1 + k]);
  }
  result.loss = result.images == 0 ? std::numeric_limits<double>::quiet_NaN()
                                   : count[2 * (num_classes + 1)] / static_cast<double>(result.images);
  if (options.predictions) *options.predictions = in_order(subset, asked, count + 2 * (num_classes + 1) + 1);
  return result;
}

}  // namespace tpgm

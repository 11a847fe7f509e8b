#include "tpgm/train/radius_loss.h"

#include <fmt/format.h>

#include <algorithm>

#include "tpgm/methods/registry.h"
#include "tpgm/train/from_options.h"

namespace tpgm {
namespace {

bool has_batch_norm(const Classifier& model) {
  const auto buffers = model.named_buffers();
  return std::any_of(buffers.begin(), buffers.end(),
                     [](const auto& each) { return each.key().ends_with("running_mean"); });
}

bool is_from_text(const HeadSource& head) {
  return head.is(HeadSource::Kind::kZeroShot) || head.is(HeadSource::Kind::kText) ||
         head.is(HeadSource::Kind::kFile);
}

// `every` of a method that learns radii, if it is auto; else null.
std::string* open_every(TrainOptions& options) {
  const auto* method = find_method(options.method);
  if (method == nullptr || !method->radius_updates || method->find("every") == nullptr) return nullptr;
  auto& every = options.method_options.try_emplace("every", "auto").first->second;
  return every == "auto" ? &every : nullptr;
}

}  // namespace

void expect_every(TrainOptions& options) {
  if (auto* every = open_every(options))
    *every = is_from_text(options.head) || options.epochs == 0 ? "end" : "1";
}

void decide_every(TrainOptions& options, const Classifier& model, std::vector<std::string>& notes) {
  auto* open = open_every(options);
  if (open == nullptr) return;
  auto& every = *open;
  const bool norms = has_batch_norm(model), text = is_from_text(options.head);
  every = norms && !text && options.epochs > 0 ? "1" : "end";
  notes.push_back(fmt::format("radii are learned {} (`every` {}), because {}",
                              every == "end" ? "once, after training" : "in every step", every,
                              options.epochs == 0 ? "`epochs` is 0"
                              : text              ? "the head is made from text"
                              : norms             ? "the network has BatchNorm"
                                                  : "the network has no BatchNorm"));
}

void decide_radius_loss(TrainOptions& options, std::vector<std::string>& notes) {
  const auto updates = radius_updates_of(options);
  if (!updates) return;
  const bool trains = !updates->every.at_end();
  if (!options.radius_smoothing) options.radius_smoothing = trains ? options.smoothing : 0;
  if (!options.radius_mix) options.radius_mix = trains && (options.mixup > 0 || options.cutmix > 0);
  const auto loss = [&](double smoothing, bool mixes) {
    std::vector<std::string> parts;
    if (smoothing > 0) parts.push_back(fmt::format("smoothing {}", smoothing));
    if (mixes && options.mixup > 0) parts.push_back(fmt::format("mixup {}", options.mixup));
    if (mixes && options.cutmix > 0) parts.push_back(fmt::format("CutMix {}", options.cutmix));
    return parts.empty() ? "no smoothing or mixing" : listed(parts);
  };
  const auto ours = loss(*options.radius_smoothing, *options.radius_mix);
  const auto training = loss(options.smoothing, true);
  if (trains && ours != training)
    notes.push_back(
        fmt::format("the training loss has {}, the radius loss {}: if they disagree about confidence, radii "
                    "shrink and the model stays at the pre-trained weights",
                    training, ours));
}

}  // namespace tpgm

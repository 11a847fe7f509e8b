// Decides when radii are learned, and from which loss, where the options leave it open.
#pragma once

#include <string>
#include <vector>

#include "tpgm/models/classifier.h"
#include "tpgm/train/options.h"

namespace tpgm {

/// Decides `every` auto of a method that learns radii, as in the paper's recipes: 1 (every step) for networks
/// with BatchNorm, end for all other networks, for heads that are made from text, and if nothing is trained. options.head must be decided. Adds
/// the reason to `notes`.
void decide_every(TrainOptions& options, const Classifier& model, std::vector<std::string>& notes);
/// The same for estimates, which have no model: end where it does not depend on the model, else 1, which costs more.
void expect_every(TrainOptions& options);

/// Decides `radius-smoothing` and `radius-mix` auto of a method that learns radii, after decide_every(). A loss
/// without smoothing, mixup and CutMix rewards more confident outputs than one with them. If radii are learned
/// from the former while weights are trained with the latter, every radius gradient points to the anchor, and
/// the model stays there. So radii that are learned during training have the training loss; at the end the
/// loss is plain cross-entropy, which is what the accuracy is about.
void decide_radius_loss(TrainOptions& options, std::vector<std::string>& notes);

}  // namespace tpgm

// The options that all methods with an anchor share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tpgm/core/anchor.h"
#include "tpgm/methods/options.h"

namespace tpgm {

/// Base class of `Options`, whose fields() must end with visit_anchored().
template <class Options>
class AnchoredOptions {
 public:
  /// Globs of parameters to leave unconstrained, such as a new head.
  Options& exclude(std::vector<std::string> globs) {
    exclude_ = std::move(globs);
    return static_cast<Options&>(*this);
  }
  const std::vector<std::string>& exclude() const { return exclude_; }
  std::vector<std::string>& exclude() { return exclude_; }

  Options& anchor_storage(AnchorStorage storage) {
    anchor_storage_ = storage;
    return static_cast<Options&>(*this);
  }
  const AnchorStorage& anchor_storage() const { return anchor_storage_; }
  AnchorStorage& anchor_storage() { return anchor_storage_; }

 protected:
  template <class Self, class Visit>
  static void visit_anchored(Self& self, Visit&& visit,
                             const char* exclude_help = "parameters to leave unconstrained") {
    visit("exclude", self.exclude(), exclude_help);
    visit("anchor_storage", self.anchor_storage(),
          "where to keep the anchor: in the weights' type, in bf16, or in host memory");
  }

 private:
  std::vector<std::string> exclude_;
  AnchorStorage anchor_storage_ = AnchorStorage::kWeights;
};

}  // namespace tpgm

// Builds error messages about tensors that do not fit: the first ten, their number, and globs that exclude
// them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpgm {

class Mismatches {
 public:
  /// `reason` continues the sentence that begins with the name: "is [10,512] in the file, [345,512] in the
  /// model".
  void add(const std::string& name, const std::string& reason);

  bool empty() const noexcept { return lines_.empty(); }
  size_t size() const noexcept { return lines_.size(); }
  /// Globs for the listed tensors, each between `before` and `after`. A glob matches the whole layer, weight
  /// and bias.
  std::vector<std::string> globs(const std::string& before, const std::string& after) const;
  /// The message: a line for one tensor, a list for several. `where` follows what is wrong, `way_out` ends
  /// it.
  std::string text(const std::string& where, const std::string& way_out) const;

 private:
  std::vector<std::string> lines_;
  std::vector<std::string> globs_;
};

}  // namespace tpgm

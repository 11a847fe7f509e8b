// Tensors that do not fit, as an error message: the first ten, how many there are, and globs that exclude
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
  /// Globs that match those listed, each between the given marks: who drops a layer's weight hardly wants its
  /// bias.
  std::vector<std::string> globs(const std::string& before, const std::string& after) const;
  /// One makes a line, several make a list; `where` is put behind what is wrong, `way_out` in the end.
  std::string text(const std::string& where, const std::string& way_out) const;

 private:
  std::vector<std::string> lines_;
  std::vector<std::string> globs_;
};

}  // namespace tpgm

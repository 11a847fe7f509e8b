// The text of messages about tensors that do not fit.
#include "tpgm/io/mismatches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

constexpr size_t kShown = 10;

}  // namespace

void Mismatches::add(const std::string& name, const std::string& reason) {
  lines_.push_back(fmt::format("'{}' {}", printable(name), reason));
  const size_t dot = name.rfind('.');
  const std::string glob = dot == std::string::npos ? name : name.substr(0, dot) + ".*";
  if (lines_.size() > kShown || std::find(globs_.begin(), globs_.end(), glob) != globs_.end()) return;
  globs_.push_back(glob);
}

std::vector<std::string> Mismatches::globs(const std::string& before, const std::string& after) const {
  std::vector<std::string> result;
  for (const auto& glob : globs_) result.push_back(before + glob + after);
  return result;
}

std::string Mismatches::text(const std::string& where, const std::string& way_out) const {
  if (lines_.size() == 1) return fmt::format("{}; {}{}", lines_[0], way_out, where);
  const auto shown = lines_.begin() + static_cast<ptrdiff_t>(std::min(lines_.size(), kShown));
  std::string text = fmt::format("{} tensors do not fit{}:\n  {}\n", lines_.size(), where,
                                 fmt::join(lines_.begin(), shown, "\n  "));
  if (shown != lines_.end()) text += fmt::format("  and {} more\n", lines_.end() - shown);
  return text + way_out;
}

}  // namespace tpgm

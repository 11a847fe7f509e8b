// How a benchmark reports progress.
#pragma once

#include <cstdint>
#include <functional>

namespace tpgm::benchmarks {

/// Gets the number of parts, and returns what to call after each. Empty: progress is not shown.
using StartProgress = std::function<std::function<void()>(int64_t parts)>;

inline std::function<void()> begin_progress(const StartProgress& progress, int64_t parts) {
  return progress ? progress(parts) : [] {};
}

}  // namespace tpgm::benchmarks

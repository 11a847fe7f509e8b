// How a benchmark says how far it is.
#pragma once

#include <cstdint>
#include <functional>

namespace tpgm::benchmarks {

/// Is told how many parts there will be, and gives what to call after each. Empty: nobody wants to know.
using StartProgress = std::function<std::function<void()>(int64_t parts)>;

inline std::function<void()> begin_progress(const StartProgress& progress, int64_t parts) {
  return progress ? progress(parts) : [] {};
}

}  // namespace tpgm::benchmarks

// The memory that a function needs.
#pragma once

#include <functional>

namespace tpgm::benchmarks {

/// The largest growth of the process's anonymous and shared memory while `work` runs, in MiB. Pages of mapped
/// files do not count, because the kernel drops them when it needs memory.
double peak_growth_mib(const std::function<void()>& work);

}  // namespace tpgm::benchmarks

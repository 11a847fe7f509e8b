// How much memory a piece of work takes.
#pragma once

#include <functional>

namespace tpgm::benchmarks {

/// The largest growth of the process's anonymous and shared memory while `work` runs, in MiB. Pages of mapped
/// files do not count: they come and go as the kernel pleases.
double peak_growth_mib(const std::function<void()>& work);

}  // namespace tpgm::benchmarks

// The memory that a function needs, sampled by a thread every millisecond.
#include "benchmarks/memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace tpgm::benchmarks {
namespace {

double resident_mib() {
  std::ifstream status("/proc/self/status");
  double kib = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:")) {
      kib += std::stod(line.substr(line.find(':') + 1));
    }
  }
  return kib / 1024;
}

}  // namespace

double peak_growth_mib(const std::function<void()>& work) {
  ::malloc_trim(0);  // or `work` would begin with memory that was freed before it
  const double before = resident_mib();
  std::atomic<double> peak = before;
  {
    const std::jthread watcher([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        peak = std::max(peak.load(), resident_mib());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    work();
  }
  return peak - before;
}

}  // namespace tpgm::benchmarks

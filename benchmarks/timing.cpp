#include "benchmarks/timing.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>
#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <string>

namespace tpgm::benchmarks {
namespace {

constexpr double kMiB = 1 << 20;

// By name, as a build without CUDA has no headers of it, and the driver is loaded whenever a device is used.
void call_driver(const char* name) {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return;
  if (void* function = ::dlsym(driver, name)) reinterpret_cast<int (*)()>(function)();
  ::dlclose(driver);
}

void synchronize(c10::Device device) {
  if (!device.is_cpu()) torch::cuda::synchronize();
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double host_ms(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void Marks::add() {
  events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT)
      .record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

std::vector<double> Marks::laps() {
  std::vector<double> laps;
  events_.back().synchronize();
  for (size_t i = 1; i < events_.size(); ++i) laps.push_back(events_[i - 1].elapsedTime(events_[i]));
  return laps;
}

// Listens to LibTorch's allocator.
class MemoryMeter::Live : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    const std::lock_guard lock(mutex_);
    now_ += size;
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  void reset() { most_ = now_; }
  int64_t most() const { return most_; }

 private:
  std::mutex mutex_;
  int64_t now_ = 0, most_ = 0;
};

MemoryMeter::MemoryMeter(c10::Device device) {
  if (device.is_cpu()) {
    live_ = std::make_shared<Live>();
    return;
  }
  index_ = c10::impl::VirtualGuardImpl(device.type()).getDevice().index();
  allocator_ = c10::getDeviceAllocator(device.type());
  reset();
}

void MemoryMeter::call(const std::function<void()>& work) {
  if (!live_) return work();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live_);
  work();
}

void MemoryMeter::reset() { live_ ? live_->reset() : allocator_->resetPeakStats(index_); }

PeakMemory MemoryMeter::peak() const {
  if (live_) return {static_cast<double>(live_->most()) / kMiB, 0};
  const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = allocator_->getDeviceStats(index_);
  return {static_cast<double>(stats.allocated_bytes[all].peak) / kMiB,
          static_cast<double>(stats.reserved_bytes[all].peak) / kMiB};
}

void free_cache(c10::Device device) {
  if (!device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
}

double available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return 1024 * std::stod(line.substr(line.find(':') + 1));
  }
  return 0;
}

ProfilerRange::ProfilerRange(c10::Device device) : device_(device) {
  synchronize(device_);
  call_driver("cuProfilerStart");
}

ProfilerRange::~ProfilerRange() {
  synchronize(device_);
  call_driver("cuProfilerStop");
}

}  // namespace tpgm::benchmarks

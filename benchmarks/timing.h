// Time and memory of work on a device.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace tpgm::benchmarks {

double median(std::vector<double> values);

/// The time in ms, by the host's clock.
double host_ms(const std::function<void()>& work);

/// Marks moments of a device's work. It waits for the device only at the end, as training does.
class Marks {
 public:
  explicit Marks(c10::Device device) : device_(device) {}
  void add();
  /// The time between consecutive marks, in ms.
  std::vector<double> laps();

 private:
  c10::Device device_;
  std::deque<c10::Event> events_;
};

/// The peak memory of tensors, and of the allocator that holds them; the latter is 0 on the CPU.
struct PeakMemory {
  double allocated_mib = 0, reserved_mib = 0;
};

/// Measures the memory of one row. On CUDA it is the allocator's count for the whole process. On the CPU it
/// is what is allocated within call(), so that rows that take turns are counted separately.
class MemoryMeter {
 public:
  explicit MemoryMeter(c10::Device device);
  void call(const std::function<void()>& work);
  /// The peak is sought from here on.
  void reset();
  PeakMemory peak() const;

 private:
  class Live;
  std::shared_ptr<Live> live_;                 // on the CPU
  c10::DeviceAllocator* allocator_ = nullptr;  // elsewhere
  c10::DeviceIndex index_ = 0;
};

/// Gives memory that no tensor uses back to the device; does nothing on the CPU.
void free_cache(c10::Device device);

/// Bytes of the machine's memory that a process can still take.
double available_memory();

/// From here to the end of its life is what a profiler that waits for cuProfilerStart sees (ncu's
/// --profile-from-start off). Waits for the device at both ends; does nothing without a CUDA driver.
class ProfilerRange {
 public:
  explicit ProfilerRange(c10::Device device);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  c10::Device device_;
};

}  // namespace tpgm::benchmarks

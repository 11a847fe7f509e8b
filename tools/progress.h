// Progress of long work on stderr: share, rate, time left. One line that renews itself on a terminal, a line
// every ten seconds elsewhere, nothing at all for what takes less than a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

#include "tools/text.h"

namespace tpgm::tools {

class Progress {
 public:
  /// `what` is done to `total` bytes, or to what `amount_text` calls them ("1,234 sentences").
  Progress(std::string what, size_t total, std::string (*amount_text)(size_t) = bytes_text);
  /// Clears the line on a terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Thread-safe.
  void add(size_t bytes);
  /// add(), to hand on.
  std::function<void(size_t)> callback();

 private:
  using Clock = std::chrono::steady_clock;

  std::mutex mutex_;
  std::string what_;
  size_t total_, done_ = 0;
  size_t first_ = 0;  // what the first add() brought, which no rate counts: it may have loaded a library
  std::string (*amount_text_)(size_t);
  bool terminal_;
  bool shown_ = false;
  Clock::time_point next_, first_at_;
};

}  // namespace tpgm::tools

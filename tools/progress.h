// Progress of long work: one line on stderr that is rewritten on a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

#include "tpgm/base/numbers.h"

namespace tpgm::tools {

/// Shows nothing for work that takes less than a second. If stderr is not a terminal, it prints a plain line
/// every ten seconds, or none for work that prints lines of its own.
class Progress {
 public:
  enum class Elsewhere { kEveryTenSeconds, kNothing };

  /// For text that the caller composes: due(), then show().
  explicit Progress(Elsewhere elsewhere = Elsewhere::kEveryTenSeconds);
  /// For add(): share, rate and time left of `total` bytes, or of what `amount_text` calls them ("1,234
  /// sentences"). `what` is done to them.
  Progress(std::string what, size_t total, std::string (*amount_text)(size_t) = bytes_text);
  /// Clears the line on a terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// True if it is time to show() again: making the text may cost more than the work.
  bool due() const;
  void show(const std::string& text);
  /// A line that stays, above the one that is rewritten.
  void say(const std::string& text);

  /// Thread-safe.
  void add(size_t amount);
  /// add() as a function.
  std::function<void(size_t)> callback();

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_, elsewhere_, shown_ = false;
  Clock::time_point next_;

  std::mutex mutex_;  // guards what add() counts
  std::string what_;
  size_t total_ = 0, done_ = 0;
  size_t first_ = 0;  // the amount of the first add(), which rates leave out: it may have loaded a library
  Clock::time_point first_at_;
  std::string (*amount_text_)(size_t) = nullptr;
};

}  // namespace tpgm::tools

// A line on stderr that says where long work is: renewed on a terminal, a plain line every ten seconds
// elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace tpgm::tools {

class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// True if it is time to show() again: making the text may cost more than the work.
  bool due() const;
  void show(const std::string& text);
  /// A line that stays, above the status.
  void say(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  void clear();

  bool terminal_, shown_ = false;
  Clock::time_point next_;
};

/// 3725 → "1:02:05", 65 → "1:05".
std::string duration_text(double seconds);

}  // namespace tpgm::tools

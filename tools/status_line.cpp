#include "tools/status_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/command.h"

namespace tpgm::tools {

StatusLine::StatusLine()
    : terminal_(::isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + std::chrono::seconds(terminal_ ? 0 : 10)) {}

StatusLine::~StatusLine() { clear(); }

void StatusLine::clear() {
  if (shown_ && terminal_) say("");
  shown_ = false;
}

bool StatusLine::due() const { return Clock::now() >= next_; }

void StatusLine::show(const std::string& text) {
  next_ = Clock::now() + std::chrono::milliseconds(terminal_ ? 200 : 10000);
  tools::say(terminal_ ? "\r" + text + "\033[K" : text + "\n");
  std::fflush(stderr);
  shown_ = true;
}

void StatusLine::say(const std::string& text) {
  tools::say((shown_ && terminal_ ? "\r\033[K" : "") + text + (text.empty() ? "" : "\n"));
  std::fflush(stderr);
  shown_ = false;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, std::isfinite(seconds) ? std::ceil(seconds) : 0.0));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace tpgm::tools

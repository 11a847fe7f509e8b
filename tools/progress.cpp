// The progress line.
#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "tools/command.h"

namespace tpgm::tools {

Progress::Progress(std::string what, size_t total, std::string (*amount_text)(size_t))
    : what_(std::move(what)),
      total_(total),
      amount_text_(amount_text),
      terminal_(::isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + std::chrono::seconds(terminal_ ? 1 : 10)) {}

Progress::~Progress() {
  if (shown_ && terminal_) say("\r\033[K");
}

void Progress::add(size_t bytes) {
  const std::lock_guard lock(mutex_);
  done_ = std::min(total_, done_ + bytes);  // what is done again counts once
  const auto now = Clock::now();
  if (first_ == 0) {
    first_ = done_;
    first_at_ = now;
  }
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(terminal_ ? 200 : 10000);
  std::string speed;
  if (done_ > first_) {
    const double rate =
        static_cast<double>(done_ - first_) / std::chrono::duration<double>(now - first_at_).count();
    speed = fmt::format(
        ", {}, {:.0f} s left",
        rate >= 10 ? amount_text_(static_cast<size_t>(rate)) + "/s" : fmt::format("{:.2f} s each", 1 / rate),
        static_cast<double>(total_ - done_) / rate);
  }
  say(fmt::format("{}{}: {} of {} ({:.0f} %){}{}", terminal_ ? "\r" : "", what_, amount_text_(done_),
                  amount_text_(total_), 100.0 * static_cast<double>(done_) / static_cast<double>(total_),
                  speed, terminal_ ? "\033[K" : "\n"));
  std::fflush(stderr);
  shown_ = true;
}

std::function<void(size_t)> Progress::callback() {
  return [this](size_t bytes) { add(bytes); };
}

}  // namespace tpgm::tools

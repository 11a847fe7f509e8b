#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tools/command.h"

namespace tpgm::tools {
namespace {

// say() lets no sequences for terminals through.
constexpr const char* kClearToEnd = "\033[K";
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

Progress::Progress(Elsewhere elsewhere)
    : terminal_(::isatty(STDERR_FILENO) == 1),
      elsewhere_(elsewhere == Elsewhere::kEveryTenSeconds),
      next_(Clock::now() + std::chrono::seconds(terminal_ ? 1 : 10)) {}

Progress::Progress(std::string what, size_t total, std::string (*amount_text)(size_t)) : Progress() {
  what_ = std::move(what);
  total_ = total;
  amount_text_ = amount_text;
}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputs(kClearLine, stderr);
}

bool Progress::due() const { return (terminal_ || elsewhere_) && Clock::now() >= next_; }

void Progress::show(const std::string& text) {
  next_ = Clock::now() + std::chrono::milliseconds(terminal_ ? 200 : 10000);
  if (terminal_) std::fputs("\r", stderr);
  tools::say(terminal_ ? text : text + "\n");
  if (terminal_) std::fputs(kClearToEnd, stderr);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::say(const std::string& text) {
  if (shown_ && terminal_) std::fputs(kClearLine, stderr);
  tools::say(text + "\n");
  std::fflush(stderr);
  shown_ = false;
}

void Progress::add(size_t amount) {
  const std::lock_guard lock(mutex_);
  done_ = std::min(total_, done_ + amount);  // repeated work counts once
  const auto now = Clock::now();
  if (first_ == 0) {
    first_ = done_;
    first_at_ = now;
  }
  if (!due()) return;
  std::string speed;
  if (done_ > first_) {
    const double rate =
        static_cast<double>(done_ - first_) / std::chrono::duration<double>(now - first_at_).count();
    speed = fmt::format(
        ", {}, {:.0f} s left",
        rate >= 10 ? amount_text_(static_cast<size_t>(rate)) + "/s" : fmt::format("{:.2f} s each", 1 / rate),
        static_cast<double>(total_ - done_) / rate);
  }
  show(fmt::format("{}: {} of {} ({:.0f} %){}", what_, amount_text_(done_), amount_text_(total_),
                   100.0 * static_cast<double>(done_) / static_cast<double>(total_), speed));
}

std::function<void(size_t)> Progress::callback() {
  return [this](size_t amount) { add(amount); };
}

}  // namespace tpgm::tools

#include "tools/interrupt.h"

#include <signal.h>

namespace tpgm::tools {
namespace {

volatile sig_atomic_t signaled = 0;  // the number of the signal

// The first signal is noted; the second ends the process.
void take_signal(int number) {
  if (signaled != 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  signaled = number;
}

}  // namespace

bool interrupted() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = take_signal;
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    return true;
  }();
  return installed && signaled != 0;
}

int interrupt_status() { return signaled == 0 ? 0 : 128 + signaled; }

}  // namespace tpgm::tools

#include "tools/interrupt.h"

#include <signal.h>

namespace tpgm::tools {
namespace {

volatile sig_atomic_t signalled = 0;

// The first signal sets the flag; the second ends the process.
void take_signal(int number) {
  if (signalled != 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  signalled = 1;
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
  return installed && signalled != 0;
}

}  // namespace tpgm::tools

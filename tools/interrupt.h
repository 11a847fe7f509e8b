// Ctrl-C, for commands that save what they have before they end.
#pragma once

namespace tpgm::tools {

/// True once SIGINT or SIGTERM came. The first call takes over both; a second signal ends the process.
bool interrupted();
/// The exit status that shells give a command that the signal ended: 130 after Ctrl-C (SIGINT), 143 after
/// SIGTERM; 0 if none came.
int interrupt_status();

}  // namespace tpgm::tools

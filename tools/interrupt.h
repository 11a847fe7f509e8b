// Ctrl-C, for commands that save what they have before they end.
#pragma once

namespace tpgm::tools {

/// True once SIGINT or SIGTERM came. The first call takes over both; a second signal ends the process.
bool interrupted();

}  // namespace tpgm::tools

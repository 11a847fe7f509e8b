// Finds the state dict of a TorchScript archive. Which attributes are parameters and buffers follows from the
// source text of its classes, which is searched, never run.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tpgm/io/torch_pickle.h"
#include "tpgm/io/zip.h"

namespace tpgm {

/// The parameters and buffers of a scripted or traced module, with the names that module.state_dict() gives
/// them in Python.
std::vector<std::pair<std::string, const pickle::StoredTensor*>> script_state(const pickle::Object& module,
                                                                              const pickle::TorchHost& host,
                                                                              const ZipArchive& archive,
                                                                              const std::string& root,
                                                                              MemoryBudget& budget);

}  // namespace tpgm

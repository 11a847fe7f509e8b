// Tensors of a checkpoint. In a file of their own so that a program that only reads names links no LibTorch.
#include <c10/util/Exception.h>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/io/mapped_tensor.h"

namespace tpgm {

at::Tensor Checkpoint::tensor(const std::string& name) const try {
  const Place& found = place(name);
  try {
    return tensor_at(mappings_[found.file], found.entry);
  } catch (const Malformed& malformed) {
    refuse(path_, {fmt::format("tensor '{}': {}", printable(name), malformed.reason), malformed.advice});
  }
} catch (...) {
  rethrow_from("Checkpoint");
}

at::Tensor Checkpoint::slice(const std::string& name, int64_t begin, int64_t count) const try {
  const Place& found = place(name);
  TORCH_CHECK(
      begin >= 0 && count >= 0 && begin <= found.entry.numel() && count <= found.entry.numel() - begin,
      "elements ", begin, " to ", begin + count, " of '", name, "', which has ", found.entry.numel());
  try {
    return slice_at(mappings_[found.file], found.entry, begin, count);
  } catch (const Malformed& malformed) {
    refuse(path_, {fmt::format("tensor '{}': {}", printable(name), malformed.reason), malformed.advice});
  }
} catch (...) {
  rethrow_from("Checkpoint");
}

NamedTensors Checkpoint::tensors() const {
  NamedTensors result("Tensor");
  for (const auto& name : names_) result.insert(name, tensor(name));
  return result;
}

}  // namespace tpgm

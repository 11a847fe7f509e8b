// Tensors of a checkpoint. In a file of their own so that a program that only reads names links no LibTorch.
#include <c10/util/Exception.h>

#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/io/mapped_tensor.h"

namespace tpgm {

at::Tensor Checkpoint::tensor(const std::string& name) const try {
  const Place& found = place(name);
  if (found.tensor.defined()) return found.tensor;
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
  if (found.tensor.defined()) return found.tensor.view(-1).slice(0, begin, begin + count);
  try {
    return slice_at(mappings_[found.file], found.entry, begin, count);
  } catch (const Malformed& malformed) {
    refuse(path_, {fmt::format("tensor '{}': {}", printable(name), malformed.reason), malformed.advice});
  }
} catch (...) {
  rethrow_from("Checkpoint");
}

void Checkpoint::set_tensors(const NamedTensors& tensors) {
  names_.clear();
  places_.clear();
  prefix_.clear();
  for (const auto& item : tensors) {
    Place place{0, {}, item.value().contiguous()};
    place.entry.dtype = place.tensor.scalar_type();
    place.entry.shape = place.tensor.sizes().vec();
    place.entry.size = place.tensor.nbytes();
    names_.push_back(item.key());
    places_.emplace(item.key(), std::move(place));
  }
}

NamedTensors Checkpoint::tensors() const {
  NamedTensors result("Tensor");
  for (const auto& name : names_) result.insert(name, tensor(name));
  return result;
}

}  // namespace tpgm

// The objects in PyTorch's pickles: tensors, storages, parameters and containers.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/io/pickle.h"

namespace tpgm::pickle {

/// A storage, whose bytes are elsewhere in the file, under a key.
struct Storage {
  at::ScalarType dtype;
  std::string key;
  int64_t numel;      ///< of the storage as it was saved
  int64_t first = 0;  ///< its first element, for a view of another storage (old files)
};

struct StoredTensor {
  size_t storage;  ///< index into TorchHost::storages()
  at::ScalarType dtype;
  int64_t offset;  ///< in elements
  std::vector<int64_t> shape, strides;
};

/// Knows the names that torch.save and torch.jit.save write for a state dict, and refuses all others. Some
/// records that training scripts save beside it (argparse.Namespace, NumPy's scalars, paths) are ignored:
/// they become opaque objects, and none of their code is run.
class TorchHost final : public PickleHost {
 public:
  /// `script`: also knows the classes of a TorchScript archive (__torch__.*).
  explicit TorchHost(bool script = false) : script_(script) {}

  void mention(const Global& global, size_t offset) override;
  Value call(Heap& heap, const Global& function, const Sequence& arguments, size_t offset) override;
  Value persistent(Heap& heap, const Value& id, size_t offset) override;

  const std::vector<Storage>& storages() const noexcept { return storages_; }
  /// The value as a tensor; null if it is none.
  const StoredTensor* tensor(const Value& value) const;
  /// The value as an instance of a TorchScript class; null if it is none.
  const Object* script_object(const Value& value) const;

 private:
  Value rebuild_tensor(Heap& heap, const Global& function, const Sequence& arguments, size_t offset);

  bool script_;
  std::vector<Storage> storages_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace tpgm::pickle

// The names that PyTorch's pickles use, and what they stand for: tensors, storages, parameters, containers.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/io/pickle.h"

namespace tpgm::pickle {

/// A run of elements whose bytes lie elsewhere in the file, under a key.
struct Storage {
  at::ScalarType dtype;
  std::string key;
  int64_t numel;      ///< of the storage as it was saved
  int64_t first = 0;  ///< element at which it begins, for a view into another storage (old files)
};

struct StoredTensor {
  size_t storage;  ///< index into TorchHost::storages()
  at::ScalarType dtype;
  int64_t offset;  ///< in elements
  std::vector<int64_t> shape, strides;
};

/// Knows what torch.save and torch.jit.save write of a state dict, and refuses everything else by name.
/// Besides, some records that training scripts keep beside it (argparse.Namespace, NumPy's scalars, paths)
/// are passed over: they become objects without a meaning, and nothing of theirs is run.
class TorchHost final : public PickleHost {
 public:
  /// `script`: classes of a TorchScript archive (__torch__.*) are known as well.
  explicit TorchHost(bool script = false) : script_(script) {}

  void mention(const Global& global, size_t offset) override;
  Value call(Heap& heap, const Global& function, const Sequence& arguments, size_t offset) override;
  Value persistent(Heap& heap, const Value& id, size_t offset) override;

  const std::vector<Storage>& storages() const noexcept { return storages_; }
  /// The tensor that the value is, or null.
  const StoredTensor* tensor(const Value& value) const;
  /// The instance of a TorchScript class that the value is, or null.
  const Object* script_object(const Value& value) const;

 private:
  Value rebuild_tensor(Heap& heap, const Global& function, const Sequence& arguments, size_t offset);

  bool script_;
  std::vector<Storage> storages_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace tpgm::pickle

// A bare pickle, as PyTorch's own names are known and as those of TorchScript are known besides.
#include "tests/fuzz/support.h"
#include "tpgm/io/torch_pickle.h"

using namespace tpgm;

FUZZ(bytes) {
  for (const bool script : {false, true}) {
    fuzz::parse_or_refuse(bytes.size(), [&] {
      MemoryBudget budget(bytes.size());
      pickle::Heap heap(budget);
      pickle::TorchHost host(script);
      Cursor cursor(bytes);
      const auto value = unpickle(cursor, heap, host);
      fuzz::demand(!pickle::describe(value).empty(), "every value has a description");
      fuzz::demand(script || host.script_object(value) == nullptr,
                   "script classes are known to scripts alone");
      if (const auto* tensor = host.tensor(value)) {
        fuzz::demand(tensor->storage < host.storages().size(), "a tensor has a storage");
        fuzz::demand(tensor->shape.size() == tensor->strides.size(), "there are as many strides as sizes");
      }
    });
  }
}

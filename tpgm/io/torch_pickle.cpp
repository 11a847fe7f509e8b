// The meaning of names in PyTorch's pickles. They are looked up only in the tables below.
#include "tpgm/io/torch_pickle.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "tpgm/io/dtypes.h"

namespace tpgm::pickle {
namespace {

enum Tag { kNothing, kStorage, kTensor, kScript };

constexpr size_t kMaxRank = 64;
constexpr size_t kMaxKey = 1024;  // bytes of a storage's key, which is a number in real files

// Functions that make a tensor from a storage, an offset, sizes and strides.
constexpr std::array<std::string_view, 3> kTensors{
    "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"};
// Functions that return their first argument.
constexpr std::array<std::string_view, 8> kWrappers{
    "torch._utils._rebuild_parameter",  "torch._utils._rebuild_parameter_with_state",
    "torch.jit._pickle.build_intlist",  "torch.jit._pickle.build_tensorlist",
    "torch.jit._pickle.build_boollist", "torch.jit._pickle.build_doublelist",
    "torch.jit._pickle.build_int",      "torch.jit._pickle.restore_type_tag"};
constexpr std::string_view kFromType = "torch._tensor._rebuild_from_type_v2";
constexpr std::array<std::string_view, 4> kDicts{"collections.OrderedDict", "collections.defaultdict",
                                                 "builtins.dict", "__builtin__.dict"};
constexpr std::array<std::string_view, 4> kSets{"builtins.set", "__builtin__.set", "builtins.frozenset",
                                                "__builtin__.frozenset"};
// Ignored names: their objects are opaque here, and their code is never run.
constexpr std::array<std::string_view, 32> kInert{"torch.Tensor",
                                                  "torch.nn.parameter.Parameter",
                                                  "torch.nn.parameter.Buffer",
                                                  "torch.Size",
                                                  "torch.device",
                                                  "torch.layout",
                                                  "torch.strided",
                                                  "torch.torch_version.TorchVersion",
                                                  "builtins.list",
                                                  "__builtin__.list",
                                                  "builtins.int",
                                                  "builtins.float",
                                                  "builtins.str",
                                                  "builtins.bytearray",
                                                  "builtins.complex",
                                                  "__builtin__.object",
                                                  "builtins.object",
                                                  "copy_reg._reconstructor",
                                                  "copyreg._reconstructor",
                                                  "argparse.Namespace",
                                                  "types.SimpleNamespace",
                                                  "pathlib.PosixPath",
                                                  "pathlib.Path",
                                                  "numpy.dtype",
                                                  "numpy.ndarray",
                                                  "numpy.core.multiarray.scalar",
                                                  "numpy.core.multiarray._reconstruct",
                                                  "numpy._core.multiarray.scalar",
                                                  "numpy._core.multiarray._reconstruct",
                                                  "_codecs.encode",
                                                  "collections.Counter",
                                                  "datetime.datetime"};

struct Unsupported {
  std::string_view name, what;
};
constexpr std::array kUnsupported{
    Unsupported{"torch._utils._rebuild_sparse_tensor", "a sparse tensor; save it with to_dense()"},
    Unsupported{"torch._utils._rebuild_sparse_csr_tensor", "a sparse tensor; save it with to_dense()"},
    Unsupported{"torch._utils._rebuild_qtensor", "a quantized tensor; save it with dequantize()"},
    Unsupported{"torch._utils._rebuild_nested_tensor", "a nested tensor; save its parts"},
    Unsupported{"torch._utils._rebuild_meta_tensor_no_storage", "a tensor without values (device meta)"},
    Unsupported{"torch._utils._rebuild_wrapper_subclass", "a wrapper subclass of tensor; save plain tensors"},
};

template <typename Table>
bool has(const Table& table, std::string_view name) {
  return std::find(table.begin(), table.end(), name) != table.end();
}

std::optional<at::ScalarType> storage_type(const Global& global) {
  const bool known =
      global.module == "torch" || global.module == "torch.cuda" || global.module == "torch.storage";
  return known ? dtype_from_storage(global.name) : std::nullopt;
}

std::optional<at::ScalarType> dtype(const Global& global) {
  return global.module == "torch" ? dtype_from_torch_name(global.name) : std::nullopt;
}

bool is_script(const Global& global) {
  return global.module == "__torch__" || global.module.starts_with("__torch__.");
}

template <typename T>
const T& expect(const Sequence& arguments, size_t index, const char* what, size_t offset) {
  require(index < arguments.items.size(), "byte {}: expected {} as argument {}, there are {}", offset, what,
          index + 1, arguments.items.size());
  const T* value = std::get_if<T>(&arguments.items[index]);
  require(value != nullptr, "byte {}: expected {} as argument {}, not {}", offset, what, index + 1,
          describe(arguments.items[index]));
  return *value;
}

std::vector<int64_t> integers(const Sequence& sequence, const char* what, size_t offset) {
  require(sequence.kind == Sequence::Kind::kTuple, "byte {}: expected a tuple of {}", offset, what);
  require(sequence.items.size() <= kMaxRank, "byte {}: expected a tensor's {}, at most {}, not {}", offset,
          what, kMaxRank, sequence.items.size());
  std::vector<int64_t> result;
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    result.push_back(expect<int64_t>(sequence, i, what, offset));
    require(result.back() >= 0, "byte {}: expected a tensor's {}, none negative, not {}", offset, what,
            result.back());
  }
  return result;
}

}  // namespace

void TorchHost::mention(const Global& global, size_t offset) {
  const std::string name = global.full();
  if (has(kTensors, name) || has(kWrappers, name) || has(kDicts, name) || has(kSets, name) ||
      has(kInert, name) || name == kFromType || storage_type(global) || dtype(global)) {
    return;
  }
  if (global.module == "numpy.dtypes" || (script_ && is_script(global))) return;
  for (const auto& each : kUnsupported) {
    if (each.name == name) {
      throw Malformed{fmt::format("byte {}: it holds {}", offset, each.what), "only plain tensors are read"};
    }
  }
  // Types of quantized tensors: torch.qint8, torch.QInt8Storage, torch.per_tensor_affine.
  if (global.module == "torch" && (global.name.starts_with("qint") || global.name.starts_with("quint") ||
                                   global.name.starts_with("QInt") || global.name.starts_with("QUInt") ||
                                   global.name.starts_with("per_"))) {
    throw Malformed{fmt::format("byte {}: it holds a quantized tensor; save it with dequantize()", offset),
                    "only plain tensors are read"};
  }
  throw Malformed{
      fmt::format("byte {}: refuses to call '{}', which is not a tensor, parameter or plain container",
                  offset, printable(name)),
      "if you trust where it comes from, load it in Python and save model.state_dict() alone"};
}

Value TorchHost::call(Heap& heap, const Global& function, const Sequence& arguments, size_t offset) {
  const std::string name = function.full();
  if (has(kTensors, name)) return rebuild_tensor(heap, function, arguments, offset);
  if (has(kWrappers, name)) {
    require(!arguments.items.empty(), "byte {}: expected an argument for '{}'", offset, name);
    return arguments.items.front();
  }
  if (name == kFromType) {
    const auto* inner = expect<Global*>(arguments, 0, "a function that rebuilds a tensor", offset);
    require(has(kTensors, inner->full()) || has(kWrappers, inner->full()),
            "byte {}: expected a function that rebuilds a tensor, not '{}'", offset,
            printable(inner->full()));
    return call(heap, *inner, *expect<Sequence*>(arguments, 2, "a tuple of arguments", offset), offset);
  }
  if (has(kDicts, name)) {
    Dict* result = heap.dict();
    if (arguments.items.empty() || !std::holds_alternative<Sequence*>(arguments.items.back())) return result;
    for (const Value& pair : std::get<Sequence*>(arguments.items.back())->items) {  // as Python 2 writes it
      auto* const* item = std::get_if<Sequence*>(&pair);
      require(item != nullptr, "byte {}: expected pairs of key and value", offset);
      if ((*item)->items.size() != 2) continue;  // a number, which unpickle() drops from lists
      heap.budget().charge(4 * sizeof(Value));
      result->items.emplace_back((*item)->items[0], (*item)->items[1]);
    }
    return result;
  }
  if (has(kSets, name)) return heap.sequence(Sequence::Kind::kSet);  // sets contain no tensors
  Object* object = heap.object(function);
  if (script_ && is_script(function)) object->tag = kScript;
  return object;
}

Value TorchHost::rebuild_tensor(Heap& heap, const Global& function, const Sequence& arguments,
                                size_t offset) {
  const auto* storage = expect<Object*>(arguments, 0, "a storage", offset);
  require(storage->tag == kStorage, "byte {}: expected a storage as argument 1, not {}", offset,
          describe(arguments.items[0]));
  StoredTensor tensor{
      storage->index, storages_[storage->index].dtype,
      expect<int64_t>(arguments, 1, "a storage offset", offset),
      integers(*expect<Sequence*>(arguments, 2, "a tuple of sizes", offset), "sizes", offset),
      integers(*expect<Sequence*>(arguments, 3, "a tuple of strides", offset), "strides", offset)};
  require(tensor.offset >= 0, "byte {}: expected a storage offset, not {}", offset, tensor.offset);
  require(tensor.shape.size() == tensor.strides.size(),
          "byte {}: expected as many strides as sizes ({}), not {}", offset, tensor.shape.size(),
          tensor.strides.size());
  const size_t bits = function.name == "_rebuild_tensor_v3" ? 7 : 6;  // {"conj": True}, for flags on a tensor
  if (bits < arguments.items.size()) {
    if (auto* const* flags = std::get_if<Dict*>(&arguments.items[bits])) {
      for (const auto& flag : (*flags)->items) {
        const bool* set = std::get_if<bool>(&flag.second);
        if (set == nullptr || !*set) continue;
        throw Malformed{
            fmt::format("byte {}: it holds a tensor that is conjugated or negated (conj, neg) in name only",
                        offset),
            "save it with resolve_conj() or resolve_neg()"};
      }
    }
  }
  if (function.name == "_rebuild_tensor_v3") {
    const auto* named = expect<Global*>(arguments, 6, "a dtype", offset);
    const auto type = dtype(*named);
    require(type.has_value(), "byte {}: expected a dtype, not '{}'", offset, printable(named->full()));
    tensor.dtype = *type;
  }
  heap.budget().charge(sizeof(StoredTensor) * 2 + 2 * tensor.shape.size() * sizeof(int64_t));
  Object* object = heap.object({"torch", "Tensor"});
  object->tag = kTensor;
  object->index = tensors_.size();
  tensors_.push_back(std::move(tensor));
  return object;
}

Value TorchHost::persistent(Heap& heap, const Value& id, size_t offset) {
  auto* const* tuple = std::get_if<Sequence*>(&id);
  require(tuple != nullptr && !(*tuple)->items.empty(),
          "byte {}: expected the description of a storage, not {}", offset, describe(id));
  const auto& kind = expect<Text>(**tuple, 0, "the word 'storage'", offset);
  require(kind.view == "storage", "byte {}: expected the description of a storage, not of a '{}'", offset,
          printable(kind.view, 40));
  const auto* named = expect<Global*>(**tuple, 1, "a storage's type", offset);
  const auto type = storage_type(*named);
  require(type.has_value(), "byte {}: expected a storage's type, not '{}'", offset, printable(named->full()));
  const auto key = expect<Text>(**tuple, 2, "a storage's key", offset).view;
  require(key.size() <= kMaxKey, "byte {}: expected a storage's key of at most {} bytes, not {}", offset,
          kMaxKey, key.size());
  Storage storage{*type, std::string(key), expect<int64_t>(**tuple, 4, "a storage's size", offset)};
  require(storage.numel >= 0, "byte {}: expected a storage's size, not {}", offset, storage.numel);
  if ((*tuple)->items.size() > 5) {
    if (auto* const* view = std::get_if<Sequence*>(&(*tuple)->items[5])) {
      storage.first = expect<int64_t>(**view, 1, "a view's offset", offset);
      require(storage.first >= 0, "byte {}: expected a view's offset, not {}", offset, storage.first);
    }
  }
  heap.budget().charge(2 * sizeof(Storage) + storage.key.size());
  Object* object = heap.object({"torch", "Storage"});
  object->tag = kStorage;
  object->index = storages_.size();
  storages_.push_back(std::move(storage));
  return object;
}

const StoredTensor* TorchHost::tensor(const Value& value) const {
  auto* const* object = std::get_if<Object*>(&value);
  return object != nullptr && (*object)->tag == kTensor ? &tensors_[(*object)->index] : nullptr;
}

const Object* TorchHost::script_object(const Value& value) const {
  auto* const* object = std::get_if<Object*>(&value);
  return object != nullptr && (*object)->tag == kScript ? *object : nullptr;
}

}  // namespace tpgm::pickle

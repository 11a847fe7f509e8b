// Parses PyTorch files: finds the pickle, reads it as data, and unwraps the state dict.
#include "tpgm/io/torch_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "tpgm/io/torch_pickle.h"
#include "tpgm/io/torch_script.h"
#include "tpgm/io/zip.h"

namespace tpgm {
namespace {

using pickle::Dict;
using pickle::StoredTensor;
using pickle::Text;
using pickle::TorchHost;
using pickle::Value;

// The keys under which training scripts save the state dict, the most likely first.
constexpr std::array<std::string_view, 9> kStateDictKeys{"state_dict", "model_state_dict", "model_state",
                                                         "model",      "module",           "net",
                                                         "network",    "weights",          "params"};
constexpr size_t kMaxNesting = 8;
constexpr size_t kMaxVisits = 1'000'000;
constexpr size_t kMaxExpansion = size_t{32} << 20;  // bytes by which a tensor may exceed its file
// The integer with which torch.save before 1.6 begins a file.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kStreamProtocol = 1001;

// The bytes of a storage.
struct Extent {
  size_t offset, size;
};
using Locate = std::function<Extent(const pickle::Storage&)>;
using Found = std::vector<std::pair<std::string, const StoredTensor*>>;

bool is_contiguous(const StoredTensor& tensor) {
  int64_t expected = 1;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] == 0) return true;
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

TensorEntry place(const StoredTensor& tensor, const pickle::Storage& storage, const Locate& locate,
                  size_t file_size) {
  const auto bytes = static_cast<size_t>(bytes_of_shape(tensor.shape, tensor.dtype));
  TensorEntry entry{tensor.dtype, tensor.shape, {}, 0, 0};
  if (entry.numel() == 0) return entry;

  const Extent extent = locate(storage);
  const auto element = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  int64_t begin = 0, view = 0, last = 0;  // bytes; bytes; elements
  bool overflow = __builtin_mul_overflow(tensor.offset, element, &begin) ||
                  __builtin_mul_overflow(storage.first, c10::elementSize(storage.dtype), &view) ||
                  __builtin_add_overflow(begin, view, &begin);
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    int64_t step = 0;
    overflow = overflow || __builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &step) ||
               __builtin_add_overflow(last, step, &last);
  }
  int64_t size = 0;
  overflow =
      overflow || __builtin_add_overflow(last, 1, &size) || __builtin_mul_overflow(size, element, &size);
  require(!overflow && static_cast<size_t>(begin) <= extent.size &&
              static_cast<size_t>(size) <= extent.size - static_cast<size_t>(begin),
          "sizes [{}] and strides [{}] from element {} on leave its storage of {} bytes at byte {}",
          printable(fmt::format("{}", fmt::join(tensor.shape, ","))),
          printable(fmt::format("{}", fmt::join(tensor.strides, ","))), tensor.offset, extent.size,
          extent.offset);
  require(bytes <= file_size + kMaxExpansion, "it repeats few elements until they take {} bytes", bytes);
  entry.offset = extent.offset + static_cast<size_t>(begin);
  entry.size = static_cast<size_t>(size);
  if (!is_contiguous(tensor)) entry.strides = tensor.strides;
  // A longer stride belongs to a size of 1, where it has no meaning; it could overflow index arithmetic.
  for (int64_t& stride : entry.strides) stride = std::min(stride, last + 1);
  return entry;
}

void place_all(TorchFile& result, const Found& found, const TorchHost& host, const Locate& locate,
               size_t file_size, MemoryBudget& budget) {
  NameGuard names;
  for (const auto& [name, tensor] : found) {
    try {
      // Once here and once in a Checkpoint.
      budget.charge(5 * name.size() + 16 * tensor->shape.size() + 640);
      names.add(name);
      require(!result.entries.contains(name), "the name is there twice");
      result.entries.insert(name, place(*tensor, host.storages()[tensor->storage], locate, file_size));
    } catch (Malformed& malformed) {
      malformed.reason = fmt::format("tensor '{}': {}", printable(name), malformed.reason);
      throw;
    }
  }
}

const Dict* as_dict(const Value& value) {
  auto* const* dict = std::get_if<Dict*>(&value);
  return dict == nullptr ? nullptr : *dict;
}

// Finds the state dict in what a training script saved.
class Unwrapper {
 public:
  Unwrapper(const TorchHost& host, MemoryBudget& budget) : host_(host), budget_(budget) {}

  Found unwrap(const Value& root, const std::string& key) {
    if (as_dict(root) == nullptr) {
      throw Malformed{fmt::format("expected a dictionary of tensors, found {}", pickle::describe(root)),
                      "save model.state_dict()"};
    }
    const Dict* dict = key.empty() ? choose(as_dict(root)) : descend(as_dict(root), key);
    collect(*dict, "", 0);
    if (!skipped_.empty()) {
      notes.push_back(fmt::format("left out what is not a tensor: {}", list(skipped_)));
    }
    if (found_.empty()) {
      throw Malformed{fmt::format("found no tensors{}; its keys are {}",
                                  key.empty() ? "" : fmt::format(" under '{}'", key), list(keys_of(*dict))),
                      "name the one that holds the state dict with `key`"};
    }
    return std::move(found_);
  }

  std::vector<std::string> notes;

 private:
  const Dict* choose(const Dict* dict) {
    for (size_t depth = 0; depth < kMaxNesting; ++depth) {
      std::string_view chosen;
      const Dict* inner = nullptr;
      for (const auto key : kStateDictKeys) {
        const Value* value = inner == nullptr ? dict->find(key) : nullptr;
        if (value == nullptr || as_dict(*value) == nullptr || !has_tensors(*as_dict(*value), 0)) continue;
        chosen = key;
        inner = as_dict(*value);
      }
      if (inner == nullptr) {
        if (has_direct_tensors(*dict)) return dict;
        size_t candidates = 0;
        for (const auto& [key, value] : dict->items) {
          const auto* name = std::get_if<Text>(&key);
          if (name == nullptr || as_dict(value) == nullptr || !has_tensors(*as_dict(value), 0)) continue;
          chosen = name->view;
          inner = as_dict(value);
          ++candidates;
        }
        if (candidates != 1) return dict;
      }
      take(*dict, chosen);
      dict = inner;
    }
    return dict;
  }

  const Dict* descend(const Dict* dict, const std::string& key) {
    std::string_view rest = key;
    while (!rest.empty()) {
      // The key itself may contain dots.
      size_t end = rest.size();
      const Value* inner = dict->find(rest);
      while (inner == nullptr && (end = rest.rfind('.', end - 1)) != std::string_view::npos && end > 0) {
        inner = dict->find(rest.substr(0, end));
      }
      if (inner == nullptr || as_dict(*inner) == nullptr) {
        throw Malformed{
            fmt::format("has no dictionary under the key '{}'; its keys are {}", key, list(keys_of(*dict))),
            "name one of them"};
      }
      take(*dict, rest.substr(0, end));
      dict = as_dict(*inner);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return dict;
  }

  void take(const Dict& dict, std::string_view key) {
    std::vector<std::string> others;
    for (const auto& name : keys_of(dict)) {
      if (name != key) others.push_back(name);
    }
    notes.push_back(fmt::format("took what is under '{}'{}", printable(key),
                                others.empty() ? "" : fmt::format(" and left out {}", list(others))));
  }

  bool has_direct_tensors(const Dict& dict) const {
    return std::any_of(dict.items.begin(), dict.items.end(), [&](const auto& item) {
      // Dictionaries may share and even contain each other.
      require(++visits_ < kMaxVisits, "its dictionaries are nested beyond reason");
      return std::holds_alternative<Text>(item.first) && host_.tensor(item.second) != nullptr;
    });
  }

  // Only under string keys: the state of an optimizer has numbers as keys.
  bool has_tensors(const Dict& dict, size_t depth) const {
    if (has_direct_tensors(dict)) return true;
    if (depth == kMaxNesting) return false;
    return std::any_of(dict.items.begin(), dict.items.end(), [&](const auto& item) {
      return std::holds_alternative<Text>(item.first) && as_dict(item.second) != nullptr &&
             has_tensors(*as_dict(item.second), depth + 1);
    });
  }

  void collect(const Dict& dict, const std::string& prefix, size_t depth) {
    for (const auto& [key, value] : dict.items) {
      const auto* text = std::get_if<Text>(&key);
      const std::string_view own = text == nullptr ? "a key that is not a string" : text->view;
      budget_.charge(2 * (prefix.size() + own.size()) + 96);
      const std::string name = prefix + std::string(own);
      if (const auto* tensor = text == nullptr ? nullptr : host_.tensor(value)) {
        found_.emplace_back(name, tensor);
      } else if (text != nullptr && as_dict(value) != nullptr && depth < kMaxNesting &&
                 has_tensors(*as_dict(value), 0)) {
        budget_.charge(2 * name.size());  // copies that live until this returns
        collect(*as_dict(value), name + ".", depth + 1);
      } else {
        skipped_.push_back(name);
      }
    }
  }

  static std::vector<std::string> keys_of(const Dict& dict) {
    std::vector<std::string> keys;
    for (const auto& item : dict.items) {
      const auto* text = std::get_if<Text>(&item.first);
      keys.push_back(text == nullptr ? "(no string)" : printable(text->view, 60));
    }
    return keys;
  }

  static std::string list(const std::vector<std::string>& names) {
    constexpr size_t kShown = 10;
    const auto shown = names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kShown));
    std::string result;
    for (auto name = names.begin(); name != shown; ++name) {
      result += fmt::format("{}'{}'", result.empty() ? "" : ", ", printable(*name, 60));
    }
    if (names.size() > kShown) result += fmt::format(" and {} more", names.size() - kShown);
    return names.empty() ? "none" : result;
  }

  const TorchHost& host_;
  MemoryBudget& budget_;
  Found found_;
  std::vector<std::string> skipped_;
  mutable size_t visits_ = 0;
};

void place_state_dict(TorchFile& result, const Value& root, const std::string& key, const TorchHost& host,
                      const Locate& locate, size_t file_size, MemoryBudget& budget) {
  Unwrapper unwrapper(host, budget);
  const Found found = unwrapper.unwrap(root, key);
  result.notes = std::move(unwrapper.notes);
  place_all(result, found, host, locate, file_size, budget);
}

TorchFile parse_archive(std::string_view file, const std::string& key, MemoryBudget& budget) {
  const ZipArchive archive(file, budget);
  std::string root;
  size_t roots = 0;
  for (const auto& record : archive.records()) {
    constexpr std::string_view kPickle = "/data.pkl";
    if (!record.first.ends_with(kPickle)) continue;
    const auto folder = record.first.substr(0, record.first.size() - kPickle.size());
    if (folder.find('/') != std::string_view::npos) continue;
    root = folder;
    ++roots;
  }
  if (roots != 1) {
    throw Malformed{
        fmt::format("a zip archive with {} records 'NAME/data.pkl', where PyTorch writes one", roots),
        "save model.state_dict() with torch.save"};
  }
  if (archive.contains(root + "/byteorder")) {
    if (archive.text(root + "/byteorder", 16) != "little") {
      throw Malformed{"its numbers are big-endian", "load and save it again on a little-endian machine"};
    }
  }
  const bool script = archive.contains(root + "/constants.pkl");
  const auto bytes = archive.stored(root + "/data.pkl");
  pickle::Heap heap(budget);
  TorchHost host(script);
  Cursor cursor(bytes, static_cast<size_t>(bytes.data() - file.data()));
  const Value value = unpickle(cursor, heap, host);

  std::map<std::string, Extent> located;
  const Locate locate = [&](const pickle::Storage& storage) {
    const auto [found, fresh] = located.try_emplace(storage.key);
    if (fresh) {
      budget.charge(storage.key.size() + 128);
      const auto data = archive.stored(root + "/data/" + storage.key);
      found->second = {static_cast<size_t>(data.data() - file.data()), data.size()};
    }
    int64_t size = 0;
    require(!__builtin_mul_overflow(storage.numel, c10::elementSize(storage.dtype), &size) &&
                static_cast<size_t>(size) <= found->second.size,
            "its storage '{}' has {} bytes, where {} elements are expected", printable(storage.key),
            found->second.size, storage.numel);
    return Extent{found->second.offset, static_cast<size_t>(size)};
  };

  TorchFile result;
  const auto* module = host.script_object(value);
  if (module != nullptr) {
    result.format = "TorchScript archive";
    require(key.empty(), "a TorchScript archive has no keys to choose from, such as '{}'", key);
    const Found found = script_state(*module, host, archive, root, budget);
    if (found.empty()) throw Malformed{"its module has no parameters or buffers", "save one that has"};
    place_all(result, found, host, locate, file.size(), budget);
  } else {
    result.format = "PyTorch archive";
    place_state_dict(result, value, key, host, locate, file.size(), budget);
  }
  return result;
}

// Five pickles (a magic number, the protocol, the writing machine, the object, the keys of the storages),
// then the storages in the order of the keys, each after its number of elements.
TorchFile parse_stream(std::string_view file, const std::string& key, MemoryBudget& budget) {
  pickle::Heap heap(budget);
  TorchHost host;
  Cursor cursor(file);

  const Value magic = unpickle(cursor, heap, host);
  const auto* number = std::get_if<pickle::BigInteger>(&magic);
  if (number == nullptr || number->view != kMagic) {
    throw Malformed{"a pickle, but not one that torch.save wrote", "save model.state_dict() with torch.save"};
  }
  const Value protocol = unpickle(cursor, heap, host);
  require(std::holds_alternative<int64_t>(protocol) && std::get<int64_t>(protocol) == kStreamProtocol,
          "expected version {} of PyTorch's pickle stream", kStreamProtocol);
  const Value machine = unpickle(cursor, heap, host);
  const Value* little = as_dict(machine) == nullptr ? nullptr : as_dict(machine)->find("little_endian");
  const bool* is_little = little == nullptr ? nullptr : std::get_if<bool>(little);
  require(is_little != nullptr, "expected the byte order of the machine that wrote it");
  if (!*is_little)
    throw Malformed{"its numbers are big-endian", "load and save it again on a little-endian machine"};
  const Value object = unpickle(cursor, heap, host);
  const Value keys = unpickle(cursor, heap, host);
  auto* const* list = std::get_if<pickle::Sequence*>(&keys);
  require(list != nullptr, "byte {}: expected the list of storages, found {}", cursor.position(),
          pickle::describe(keys));

  std::map<std::string_view, const pickle::Storage*> storages;
  for (const auto& storage : host.storages()) {
    budget.charge(64);
    storages.emplace(storage.key, &storage);
  }
  std::map<std::string_view, Extent> extents;
  for (const Value& each : (*list)->items) {
    const auto* name = std::get_if<Text>(&each);
    require(name != nullptr && storages.contains(name->view),
            "byte {}: expected the key of a storage that a tensor uses, not {}", cursor.position(),
            pickle::describe(each));
    const pickle::Storage& storage = *storages[name->view];
    const size_t at = cursor.position();
    const auto numel = cursor.number<int64_t>("a storage's number of elements");
    int64_t size = 0;
    require(numel == storage.numel && !__builtin_mul_overflow(numel, c10::elementSize(storage.dtype), &size),
            "byte {}: expected storage '{}' of {} elements, found {}", at, printable(name->view),
            storage.numel, numel);
    const size_t begin = cursor.position();
    cursor.take(static_cast<size_t>(size), "a storage's data");
    budget.charge(64);
    require(extents.emplace(name->view, Extent{begin, static_cast<size_t>(size)}).second,
            "byte {}: storage '{}' is there twice", at, printable(name->view));
  }
  require(cursor.left() == 0, "byte {}: {} bytes at the end belong to no tensor", cursor.position(),
          cursor.left());

  const Locate locate = [&](const pickle::Storage& storage) {
    const auto found = extents.find(storage.key);
    require(found != extents.end(), "its storage '{}' is not in the file", printable(storage.key));
    return found->second;
  };
  TorchFile result;
  result.format = "PyTorch pickle (before 1.6)";
  place_state_dict(result, object, key, host, locate, file.size(), budget);
  return result;
}

bool is_zip(std::string_view file) { return file.starts_with("PK\x03\x04"); }
bool is_pickle(std::string_view file) {
  return file.size() > 1 && file[0] == '\x80' && file[1] >= 2 && file[1] <= 5;
}

}  // namespace

bool looks_like_torch_file(std::string_view file) { return is_zip(file) || is_pickle(file); }

TorchFile parse_torch_file(std::string_view file, const std::string& key) {
  MemoryBudget budget(file.size());
  return parse_torch_file(file, key, budget);
}

TorchFile parse_torch_file(std::string_view file, const std::string& key, MemoryBudget& budget) {
  require(looks_like_torch_file(file), "expected a zip archive or a pickle, as torch.save writes");
  return is_zip(file) ? parse_archive(file, key, budget) : parse_stream(file, key, budget);
}

}  // namespace tpgm

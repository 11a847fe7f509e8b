// Reads pickles as data: the opcodes build values, and nothing is ever imported or called.
//
// A Python pickle is a program that can call any function by name. Here a name stays a name (Global), and a
// call goes to a PickleHost, which knows a fixed list of names and throws Malformed for all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "tpgm/base/untrusted.h"

namespace tpgm::pickle {

struct Sequence;
struct Dict;
struct Global;
struct Object;
struct None {};
struct Text {
  std::string_view view;
};
struct Bytes {
  std::string_view view;
};
/// An integer beyond 64 bits, as little-endian two's complement.
struct BigInteger {
  std::string_view view;
};

/// Values point into the Heap that made them and into the bytes of the pickle, which must outlive them. Lists
/// may contain themselves.
using Value =
    std::variant<None, bool, int64_t, double, Text, Bytes, BigInteger, Sequence*, Dict*, Global*, Object*>;

struct Sequence {
  enum class Kind { kTuple, kList, kSet } kind = Kind::kTuple;
  std::vector<Value> items;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  /// The last value under this key, or null.
  const Value* find(std::string_view key) const;
};
/// "module.name", never imported.
struct Global {
  std::string module, name;
  std::string full() const { return module + "." + name; }
};
/// An instance of `type`, the result of a call.
struct Object {
  Global type;
  const Dict* state = nullptr;  ///< attributes, from BUILD
  int tag = 0;                  ///< for the host: the table that holds more, if any,
  size_t index = 0;             ///< and the index in it
};

/// Owns the values of all pickles of a file. Values do not own each other, so destruction does not recurse,
/// however deep they are nested.
class Heap {
 public:
  explicit Heap(MemoryBudget& budget) : budget_(budget) {}

  Sequence* sequence(Sequence::Kind kind, std::vector<Value> items = {});
  Dict* dict();
  Global* global(std::string_view module, std::string_view name);
  Object* object(const Global& type);
  MemoryBudget& budget() { return budget_; }

 private:
  MemoryBudget& budget_;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Global> globals_;
  std::deque<Object> objects_;
};

/// Gives meaning to the names in a pickle. Each function throws Malformed for names that it does not know.
class PickleHost {
 public:
  virtual ~PickleHost() = default;
  /// Called for every name in the pickle; throws unless it is known.
  virtual void mention(const Global& global, size_t offset) = 0;
  /// `function(arguments...)`, or an instance of the class `function`.
  virtual Value call(Heap& heap, const Global& function, const Sequence& arguments, size_t offset) = 0;
  /// An object whose data are outside of the pickle, by its identifier.
  virtual Value persistent(Heap& heap, const Value& id, size_t offset) = 0;
};

/// Reads one pickle (protocols 0 to 5) from the cursor up to and including its STOP, in time linear in its
/// length. Numbers in lists are dropped: a training log has millions of them, a state dict none.
Value unpickle(Cursor& bytes, Heap& heap, PickleHost& host);

/// A description of a value for messages: "a list", "'os.system'".
std::string describe(const Value& value);

}  // namespace tpgm::pickle

// The pickle machine: a stack, a memo, and one case per opcode.
#include "tpgm/io/pickle.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <map>
#include <utility>

#include "tpgm/base/numbers.h"

namespace tpgm::pickle {
namespace {

constexpr size_t kHighestProtocol = 5;
constexpr size_t kMaxName = 4096;  // bytes

// The most that an entry of std::map, and one of a vector that doubles, can cost.
constexpr size_t kMemoBytes = 2 * sizeof(Value) + 48;
constexpr size_t kStackBytes = 3 * sizeof(Value);  // a vector that grows holds its old memory for a moment

class Machine {
 public:
  Machine(Cursor& bytes, Heap& heap, PickleHost& host) : bytes_(bytes), heap_(heap), host_(host) {}

  Value run() {
    for (;;) {
      at_ = bytes_.position();
      const auto opcode = bytes_.number<unsigned char>("an opcode of a pickle");
      if (opcode == '.') return pop();
      step(opcode);
      heap_.budget().charge(bytes_.position() - at_);
    }
  }

 private:
  void step(unsigned char opcode) {
    switch (opcode) {
      case 0x80: {  // PROTO
        const auto protocol = bytes_.number<uint8_t>("a protocol");
        check(protocol <= kHighestProtocol, "pickle protocols 0 to {}, not {}", kHighestProtocol, protocol);
        break;
      }
      case 0x95:
        bytes_.number<uint64_t>("a frame's length");
        break;  // FRAME: for unbuffered readers

      case 'N':
        push(None{});
        break;
      case 0x88:
        push(true);
        break;
      case 0x89:
        push(false);
        break;
      case 'I':
        push_decimal(bytes_.line("an integer"), /*may_be_bool=*/true);
        break;
      case 'L':
        push_decimal(bytes_.line("an integer"), /*may_be_bool=*/false);
        break;
      case 'J':
        push(int64_t{bytes_.number<int32_t>("an integer")});
        break;
      case 'K':
        push(int64_t{bytes_.number<uint8_t>("an integer")});
        break;
      case 'M':
        push(int64_t{bytes_.number<uint16_t>("an integer")});
        break;
      case 0x8a:
        push_long(bytes_.take(bytes_.number<uint8_t>("a length"), "an integer"));
        break;
      case 0x8b:
        push_long(bytes_.take(length<int32_t>(), "an integer"));
        break;
      case 'F':
        push_float(bytes_.line("a number"));
        break;
      case 'G':
        push(std::bit_cast<double>(__builtin_bswap64(bytes_.number<uint64_t>("a number"))));
        break;

      case 'S':
        push(Text{unquoted(bytes_.line("a string"))});
        break;
      case 'T':
        push(Text{bytes_.take(length<int32_t>(), "a string")});
        break;
      case 'U':
        push(Text{bytes_.take(length<uint8_t>(), "a string")});
        break;
      case 'V':
        push(Text{bytes_.line("a string")});
        break;
      case 'X':
        push(Text{bytes_.take(length<uint32_t>(), "a string")});
        break;
      case 0x8c:
        push(Text{bytes_.take(length<uint8_t>(), "a string")});
        break;
      case 0x8d:
        push(Text{bytes_.take(length<uint64_t>(), "a string")});
        break;
      case 'B':
        push(Bytes{bytes_.take(length<uint32_t>(), "bytes")});
        break;
      case 'C':
        push(Bytes{bytes_.take(length<uint8_t>(), "bytes")});
        break;
      case 0x8e:
      case 0x96:
        push(Bytes{bytes_.take(length<uint64_t>(), "bytes")});
        break;

      case '(':
        heap_.budget().charge(kStackBytes), marks_.push_back(stack_.size());
        break;
      case '0':
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
        } else {
          pop();
        }
        break;
      case '1':
        pop_to_mark();
        break;
      case '2':
        push(top());
        break;

      case ')':
        push(heap_.sequence(Sequence::Kind::kTuple));
        break;
      case 't':
        push(heap_.sequence(Sequence::Kind::kTuple, pop_to_mark()));
        break;
      case 0x85:
        push(heap_.sequence(Sequence::Kind::kTuple, pop_last(1)));
        break;
      case 0x86:
        push(heap_.sequence(Sequence::Kind::kTuple, pop_last(2)));
        break;
      case 0x87:
        push(heap_.sequence(Sequence::Kind::kTuple, pop_last(3)));
        break;
      case ']':
        push(heap_.sequence(Sequence::Kind::kList));
        break;
      case 'l':
        push(heap_.sequence(Sequence::Kind::kList, pop_to_mark()));
        break;
      case 0x8f:
        push(heap_.sequence(Sequence::Kind::kSet));
        break;
      case 0x91:
        push(heap_.sequence(Sequence::Kind::kSet, pop_to_mark()));
        break;
      case 'a':
        extend(pop_last(1));
        break;
      case 'e':
      case 0x90:
        extend(pop_to_mark());
        break;
      case '}':
        push(heap_.dict());
        break;
      case 'd': {
        auto items = pop_to_mark();
        push(heap_.dict());
        update(items);
        break;
      }
      case 's':
        update(pop_last(2));
        break;
      case 'u':
        update(pop_to_mark());
        break;

      case 'p':
        remember(decimal<uint64_t>(bytes_.line("a memo's number")));
        break;
      case 'q':
        remember(bytes_.number<uint8_t>("a memo's number"));
        break;
      case 'r':
        remember(bytes_.number<uint32_t>("a memo's number"));
        break;
      case 0x94:
        remember(memo_.size());
        break;
      case 'g':
        recall(decimal<uint64_t>(bytes_.line("a memo's number")));
        break;
      case 'h':
        recall(bytes_.number<uint8_t>("a memo's number"));
        break;
      case 'j':
        recall(bytes_.number<uint32_t>("a memo's number"));
        break;

      case 'c': {
        const auto module = bytes_.line("a module's name");
        mention(module, bytes_.line("a name"));
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const auto name = pop_as<Text>("a name");
        mention(pop_as<Text>("a module's name").view, name.view);
        break;
      }
      case 'R': {
        const auto* arguments = pop_arguments();
        call(*pop_as<Global*>("something to call"), *arguments);
        break;
      }
      case 0x81: {  // NEWOBJ
        const auto* arguments = pop_arguments();
        call(*pop_as<Global*>("a class"), *arguments);
        break;
      }
      case 0x92: {  // NEWOBJ_EX
        pop_as<Dict*>("named arguments");
        const auto* arguments = pop_arguments();
        call(*pop_as<Global*>("a class"), *arguments);
        break;
      }
      case 'i': {  // INST
        const auto module = bytes_.line("a module's name");
        const auto name = bytes_.line("a name");
        const auto* arguments = heap_.sequence(Sequence::Kind::kTuple, pop_to_mark());
        call(*mentioned(module, name), *arguments);
        break;
      }
      case 'o': {  // OBJ
        auto items = pop_to_mark();
        check(!items.empty() && std::holds_alternative<Global*>(items.front()), "a class and its arguments");
        const auto* type = std::get<Global*>(items.front());
        items.erase(items.begin());
        call(*type, *heap_.sequence(Sequence::Kind::kTuple, std::move(items)));
        break;
      }
      case 'b': {  // BUILD: attributes. Those of objects are kept, those of containers ignored
        const Value state = pop();
        if (auto* const* object = std::get_if<Object*>(&top())) {
          if (auto* const* attributes = std::get_if<Dict*>(&state)) (*object)->state = *attributes;
        }
        break;
      }
      case 'P':
        push(host_.persistent(heap_, Text{bytes_.line("a persistent id")}, at_));
        break;
      case 'Q': {
        const Value id = pop();
        push(host_.persistent(heap_, id, at_));
        break;
      }
      default:
        check(false, "an opcode of a pickle that holds tensors, not 0x{:02x}", opcode);
    }
  }

  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> expected, Args&&... args) const {
    if (!condition) {
      throw Malformed{
          fmt::format("byte {}: expected {}", at_, fmt::format(expected, std::forward<Args>(args)...))};
    }
  }

  void push(Value value) {
    if (stack_.size() == highest_) {
      heap_.budget().charge(kStackBytes);
      ++highest_;
    }
    stack_.push_back(value);
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  const Value& top() const {
    check(stack_.size() > floor(), "a value before this opcode");
    return stack_.back();
  }

  Value pop() {
    const Value value = top();
    stack_.pop_back();
    return value;
  }

  template <typename T>
  T pop_as(const char* what) {
    const Value value = pop();
    if (!std::holds_alternative<T>(value)) check(false, "{} on the stack, not {}", what, describe(value));
    return std::get<T>(value);
  }

  // Lists lack their numbers; see extend().
  const Sequence* pop_arguments() {
    const auto* arguments = pop_as<Sequence*>("a tuple of arguments");
    check(arguments->kind == Sequence::Kind::kTuple, "a tuple of arguments on the stack, not {}",
          describe(const_cast<Sequence*>(arguments)));
    return arguments;
  }

  std::vector<Value> pop_last(size_t count) {
    check(stack_.size() >= floor() + count, "{} values before this opcode", count);
    std::vector<Value> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  std::vector<Value> pop_to_mark() {
    check(!marks_.empty(), "a mark before this opcode");
    auto values = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  void extend(const std::vector<Value>& values) {
    if (std::holds_alternative<Object*>(top())) return;  // a subclass of list: as in update()
    if (!std::holds_alternative<Sequence*>(top()))
      check(false, "a list to append to, not {}", describe(top()));
    auto& items = std::get<Sequence*>(top())->items;
    for (const Value& value : values) {
      if (std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value)) continue;
      heap_.budget().charge(3 * sizeof(Value));
      items.push_back(value);
    }
  }

  void update(const std::vector<Value>& values) {
    check(values.size() % 2 == 0, "keys with values");
    // Subclasses of dict are objects here, and their items are ignored.
    if (std::holds_alternative<Object*>(top())) return;
    if (!std::holds_alternative<Dict*>(top()))
      check(false, "a dictionary to put items into, not {}", describe(top()));
    auto& items = std::get<Dict*>(top())->items;
    heap_.budget().charge(2 * values.size() * sizeof(Value));
    for (size_t i = 0; i < values.size(); i += 2) items.emplace_back(values[i], values[i + 1]);
  }

  void remember(uint64_t index) {
    heap_.budget().charge(kMemoBytes);
    memo_[index] = top();
  }

  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    check(found != memo_.end(), "memo {} to have been stored before", index);
    push(found->second);
  }

  Global* mentioned(std::string_view module, std::string_view name) {
    check(module.size() + name.size() <= kMaxName, "a name of at most {} bytes, not {}", kMaxName,
          module.size() + name.size());
    auto* global = heap_.global(module, name);
    host_.mention(*global, at_);
    return global;
  }
  void mention(std::string_view module, std::string_view name) { push(mentioned(module, name)); }

  void call(const Global& function, const Sequence& arguments) {
    push(host_.call(heap_, function, arguments, at_));
  }

  template <typename T>
  size_t length() {
    const T value = bytes_.number<T>("a length");
    if constexpr (std::is_signed_v<T>) check(value >= 0, "a length, not {}", value);
    return static_cast<size_t>(value);
  }

  template <typename T>
  T decimal(std::string_view text) const {
    if (text.ends_with('L')) text.remove_suffix(1);  // a long of Python 2
    const auto value = parse_number<T>(text);
    check(value.has_value(), "an integer, not '{}'", printable(text, 40));
    return *value;
  }

  void push_decimal(std::string_view text, bool may_be_bool) {
    if (may_be_bool && (text == "00" || text == "01")) {
      push(text == "01");
    } else {
      push(decimal<int64_t>(text));
    }
  }

  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) {
      push(BigInteger{bytes});
      return;
    }
    int64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? -1 : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    push(value);
  }

  void push_float(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(error != std::errc::invalid_argument && end == text.data() + text.size(), "a number, not '{}'",
          printable(text, 40));
    push(value);
  }

  std::string_view unquoted(std::string_view text) const {
    check(text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front(),
          "a string in quotes");
    return text.substr(1, text.size() - 2);
  }

  Cursor& bytes_;
  Heap& heap_;
  PickleHost& host_;
  size_t at_ = 0;  // byte of the file at which the opcode begins
  std::vector<Value> stack_;
  size_t highest_ = 0;         // the largest size of the stack so far, charged to the budget
  std::vector<size_t> marks_;  // heights of the stack
  // Not a hash table: the file chooses the keys, and could make them collide.
  std::map<uint64_t, Value> memo_;
};

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    const auto* text = std::get_if<Text>(&item->first);
    if (text != nullptr && text->view == key) return &item->second;
  }
  return nullptr;
}

Sequence* Heap::sequence(Sequence::Kind kind, std::vector<Value> items) {
  budget_.charge(sizeof(Sequence) + items.size() * sizeof(Value) + 16);
  return &sequences_.emplace_back(Sequence{kind, std::move(items)});
}

Dict* Heap::dict() {
  budget_.charge(sizeof(Dict));
  return &dicts_.emplace_back();
}

Global* Heap::global(std::string_view module, std::string_view name) {
  budget_.charge(sizeof(Global) + module.size() + name.size() + 32);
  return &globals_.emplace_back(Global{std::string(module), std::string(name)});
}

Object* Heap::object(const Global& type) {
  budget_.charge(sizeof(Object) + type.module.size() + type.name.size() + 32);
  return &objects_.emplace_back(Object{type});
}

Value unpickle(Cursor& bytes, Heap& heap, PickleHost& host) { return Machine(bytes, heap, host).run(); }

std::string describe(const Value& value) {
  struct Visitor {
    std::string operator()(None) const { return "None"; }
    std::string operator()(bool) const { return "a bool"; }
    std::string operator()(int64_t) const { return "an integer"; }
    std::string operator()(BigInteger) const { return "an integer"; }
    std::string operator()(double) const { return "a number"; }
    std::string operator()(Text text) const {
      return fmt::format("the string '{}'", printable(text.view, 40));
    }
    std::string operator()(Bytes) const { return "bytes"; }
    std::string operator()(const Sequence* sequence) const {
      switch (sequence->kind) {
        case Sequence::Kind::kTuple:
          return "a tuple";
        case Sequence::Kind::kList:
          return "a list";
        case Sequence::Kind::kSet:
          return "a set";
      }
      return "a sequence";
    }
    std::string operator()(const Dict*) const { return "a dictionary"; }
    std::string operator()(const Global* global) const {
      return fmt::format("'{}'", printable(global->full(), 80));
    }
    std::string operator()(const Object* object) const {
      return fmt::format("a '{}'", printable(object->type.full(), 80));
    }
  };
  return std::visit(Visitor{}, value);
}

}  // namespace tpgm::pickle

// Files byte by byte, for tests that break them: a pickle assembler, a zip writer and shorthands for the
// formats that are made of these.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm::test {

/// Little-endian.
template <typename T>
std::string number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

inline std::string repeat(std::string_view text, size_t count) {
  std::string result;
  result.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

/// make(0) + make(1) + ... until `size` bytes are reached.
template <typename Make>
std::string fill(size_t size, const Make& make) {
  std::string result;
  result.reserve(size + (size_t{1} << 16));
  for (size_t i = 0; result.size() < size; ++i) result += make(i);
  return result;
}

// ---- safetensors ----

inline std::string safetensors(const std::string& header, const std::string& data = "") {
  return number<uint64_t>(header.size()) + header + data;
}

inline std::string described(const std::string& name, const std::string& dtype, const std::string& shape,
                             const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         offsets + "]}";
}

/// A tensor of one F32.
inline std::string plain(const std::string& name = "w") { return described(name, "F32", "1", "0,4"); }

inline std::string good_safetensors(const std::string& name = "w") {
  return safetensors("{" + plain(name) + "}", "abcd");
}

// ---- zip ----

struct Record {
  std::string name, data;
  uint16_t method = 0, flags = 0;
  std::optional<uint64_t> inflated = std::nullopt;       // what it claims
  std::optional<std::string> local_name = std::nullopt;  // in its own header
  std::optional<uint32_t> header = std::nullopt;         // where the directory says it is
  std::optional<uint32_t> size = std::nullopt;           // what the directory says it takes
  std::string extra = "", comment = "";                  // in the directory
};

/// How the end of an archive lies.
struct End {
  std::optional<uint64_t> records = std::nullopt, size = std::nullopt, offset = std::nullopt;
  bool zip64 = false;
  std::optional<uint64_t> end64 = std::nullopt;  // where the locator says the zip64 end record is
  std::string comment = "";
  std::optional<uint16_t> comment_size = std::nullopt;
};

inline std::string zip(const std::vector<Record>& records, const End& end = {}) {
  std::string file, directory;
  for (const Record& record : records) {
    const auto at = static_cast<uint32_t>(file.size());
    const auto size = static_cast<uint32_t>(record.data.size());
    const auto inflated = static_cast<uint32_t>(record.inflated.value_or(size));
    const std::string local = record.local_name.value_or(record.name);
    file += number<uint32_t>(0x04034b50) + number<uint16_t>(20) + number(record.flags) +
            number(record.method) + std::string(8, '\0') + number(size) + number(inflated) +
            number(static_cast<uint16_t>(local.size())) + number<uint16_t>(0) + local + record.data;
    directory += number<uint32_t>(0x02014b50) + number<uint16_t>(20) + number<uint16_t>(20) +
                 number(record.flags) + number(record.method) + std::string(8, '\0') +
                 number(record.size.value_or(size)) + number(inflated) +
                 number(static_cast<uint16_t>(record.name.size())) +
                 number(static_cast<uint16_t>(record.extra.size())) +
                 number(static_cast<uint16_t>(record.comment.size())) + std::string(8, '\0') +
                 number(record.header.value_or(at)) + record.name + record.extra + record.comment;
  }
  const uint64_t offset = file.size();
  file += directory;
  const uint64_t count = end.records.value_or(records.size());
  const uint64_t size = end.size.value_or(directory.size());
  const uint64_t begin = end.offset.value_or(offset);
  if (end.zip64) {
    const uint64_t at = end.end64.value_or(file.size());
    file += number<uint32_t>(0x06064b50) + number<uint64_t>(44) + std::string(12, '\0') +
            number<uint64_t>(count) + number(count) + number(size) + number(begin);
    file += number<uint32_t>(0x07064b50) + number<uint32_t>(0) + number(at) + number<uint32_t>(1);
  }
  file += number<uint32_t>(0x06054b50) + std::string(4, '\0') + number(static_cast<uint16_t>(count)) +
          number(static_cast<uint16_t>(count)) + number(static_cast<uint32_t>(size)) +
          number(static_cast<uint32_t>(begin)) +
          number(end.comment_size.value_or(static_cast<uint16_t>(end.comment.size()))) + end.comment;
  return file;
}

/// `count` times `text`, in the deflate format without a header, as zip has it.
inline std::string deflated(const std::string& text, size_t count = 1) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string once(text.size() + (text.size() >> 3) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(once.data());
  stream.avail_out = static_cast<uInt>(once.size());
  deflate(&stream,
          Z_FULL_FLUSH);  // whole bytes that refer to nothing before them, so that they can be repeated
  once.resize(stream.total_out);
  deflateEnd(&stream);
  return repeat(once, count) + std::string("\x03\0", 2);  // and a last block, empty
}

// ---- pickle: every function gives the opcodes that push what it is named after ----

inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string text(std::string_view value) {
  return "X" + number(static_cast<uint32_t>(value.size())) + std::string(value);
}
inline std::string integer(int64_t value) { return "\x8a\x08" + number(value); }
inline std::string tuple(const std::vector<std::string>& items) {
  std::string result = "(";
  for (const auto& item : items) result += item;
  return result + "t";
}
inline std::string integers(const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (const int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}
inline std::string reduce(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}
/// Keys and values in turn.
inline std::string dict(const std::vector<std::string>& items) {
  std::string result = "}(";
  for (const auto& item : items) result += item;
  return result + "u";
}
inline std::string put(uint32_t memo) { return "r" + number(memo); }
inline std::string get(uint32_t memo) { return "j" + number(memo); }

inline std::string storage(const std::string& key, int64_t numel, const std::string& type = "FloatStorage") {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(numel)}) + "Q";
}
inline std::string tensor(const std::string& storage, int64_t offset, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& strides) {
  return reduce(global("torch._utils", "_rebuild_tensor_v2"),
                {storage, integer(offset), integers(sizes), integers(strides), "\x89",
                 reduce(global("collections", "OrderedDict"), {})});
}
/// A tensor of one float, the storage under key "0".
inline std::string one_float() { return tensor(storage("0", 1), 0, {1}, {1}); }

inline std::string pickled(const std::string& body, char protocol = 2) {
  return std::string("\x80") + protocol + body + ".";
}

// ---- PyTorch's files ----

/// torch.save's archive around a pickle; storage "0" has 4 bytes.
inline std::string archive(const std::string& pickle, const std::vector<Record>& more = {},
                           const End& end = {}) {
  std::vector<Record> records{{"a/data.pkl", pickle}, {"a/byteorder", "little"}, {"a/data/0", "abcd"}};
  records.insert(records.end(), more.begin(), more.end());
  return zip(records, end);
}
/// An archive of the object that `body` builds.
inline std::string saved(const std::string& body) { return archive(pickled(body)); }
/// The same for a state dict with one entry, "w".
inline std::string saved_tensor(const std::string& tensor) { return saved(dict({text("w"), tensor})); }

struct Stream {
  std::string magic = std::string("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12);
  std::string protocol = "M\xe9\x03";
  std::string machine = dict({text("little_endian"), "\x88"});
  std::string object = dict({text("w"), one_float()});
  std::string keys = "](" + text("0") + "e";
  std::string storages = number<int64_t>(1) + "abcd";

  std::string bytes() const {
    return pickled(magic) + pickled(protocol) + pickled(machine) + pickled(object) + pickled(keys) + storages;
  }
};

/// A TorchScript archive: its object, and the source of its classes.
inline std::string script(const std::string& body, const std::vector<Record>& code) {
  auto records = code;
  records.push_back({"a/constants.pkl", pickled(")")});
  return archive(pickled(body), records);
}
inline std::string module_source(const std::string& name = "Net") {
  return "class " + name + "(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = []\n";
}
/// An instance of __torch__.Net with these attributes.
inline std::string script_module(const std::string& attributes, const std::string& name = "Net") {
  return global("__torch__", name) + ")\x81" + attributes + "b";
}

}  // namespace tpgm::test

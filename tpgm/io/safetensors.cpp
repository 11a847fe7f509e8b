// Reading (check everything, then alias the map) and writing (plan the header, then stream) of safetensors.
#include "tpgm/io/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace tpgm {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

using json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxReason = 400;  // reasons quote the file, whose names may be of any length
constexpr const char* kMetadataKey = "__metadata__";

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};

// In the reference implementation's order, which its writer sorts by, backwards: the order of our bytes too.
constexpr std::array kDtypes{
    Dtype{"BOOL", at::kBool},
    Dtype{"U8", at::kByte},
    Dtype{"I8", at::kChar},
    Dtype{"F8_E5M2", at::kFloat8_e5m2},
    Dtype{"F8_E4M3", at::kFloat8_e4m3fn},
    Dtype{"F8_E8M0", at::kFloat8_e8m0fnu},
    Dtype{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    Dtype{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    Dtype{"I16", at::kShort},
    Dtype{"U16", at::kUInt16},
    Dtype{"F16", at::kHalf},
    Dtype{"BF16", at::kBFloat16},
    Dtype{"I32", at::kInt},
    Dtype{"U32", at::kUInt32},
    Dtype{"F32", at::kFloat},
    Dtype{"C64", at::kComplexFloat},
    Dtype{"F64", at::kDouble},
    Dtype{"I64", at::kLong},
    Dtype{"U64", at::kUInt64},
};

// What a file did wrong; the file's name is added where it is known.
struct Malformed {
  std::string reason;
};

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> reason, Args&&... args) {
  if (!condition) throw Malformed{fmt::format(reason, std::forward<Args>(args)...)};
}

// The parser keeps the last of equal keys and says nothing; this listens to it once more. (Its callback could
// detect them as well, but takes quadratic time.)
class KeysOnce : public nlohmann::json_sax<json> {
 public:
  bool key(std::string& key) override {
    require(open_.back().insert(key).second, "the header has the key '{}' twice", key);
    return true;
  }
  bool start_object(size_t) override { return open_.emplace_back(), true; }
  bool end_object() override { return open_.pop_back(), true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  std::vector<std::set<std::string>> open_;  // keys so far, of every object that is not closed yet
};

json parse_json(std::string_view text) {
  require(!text.empty() && text.front() == '{', "the header does not begin with '{{'");
  // To the parser a NUL is the end of its input, and whatever follows would go unread.
  require(text.find('\0') == std::string_view::npos, "the header is not JSON: it contains a NUL byte");
  try {
    json header = json::parse(text);
    KeysOnce keys_once;
    json::sax_parse(text, &keys_once);
    return header;
  } catch (const json::exception& error) {
    throw Malformed{fmt::format("the header is not JSON: {}", error.what())};
  }
}

const json& field(const std::string& name, const json& entry, const char* key) {
  const auto found = entry.find(key);
  require(found != entry.end(), "'{}' has no '{}'", name, key);
  return *found;
}

SafetensorsEntry parse_entry(const std::string& name, const json& value, size_t data_begin,
                             size_t data_size) {
  require(value.is_object(), "'{}' is not described by an object", name);

  const json& dtype_name = field(name, value, "dtype");
  require(dtype_name.is_string(), "the dtype of '{}' is not a string", name);
  const auto* dtype = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) {
    return d.name == dtype_name.get_ref<const std::string&>();
  });
  require(dtype != kDtypes.end(), "the dtype '{}' of '{}' is unknown",
          dtype_name.get_ref<const std::string&>(), name);

  const json& shape = field(name, value, "shape");
  require(shape.is_array(), "the shape of '{}' is not an array", name);
  SafetensorsEntry entry{dtype->type, {}, 0, 0};
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype->type));
  bool empty = false;
  for (const json& extent : shape) {
    require(extent.is_number_unsigned(), "the shape of '{}' has other than non-negative integers", name);
    const auto size = extent.get<uint64_t>();
    empty = empty || size == 0;
    // A size of 0 counts as 1 here: strides are products of the other sizes and must not overflow either.
    require(size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) &&
                !__builtin_mul_overflow(bytes, std::max<int64_t>(static_cast<int64_t>(size), 1), &bytes),
            "the shape of '{}' overflows 64 bits", name);
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  entry.size = empty ? 0 : static_cast<size_t>(bytes);

  const json& offsets = field(name, value, "data_offsets");
  require(offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
              offsets[1].is_number_unsigned(),
          "the data_offsets of '{}' are not two non-negative integers", name);
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  require(begin <= end, "the data of '{}' begins at {} and ends before, at {}", name, begin, end);
  require(end <= data_size, "the data of '{}' ends at {}, but the file has only {} bytes of data", name, end,
          data_size);
  require(end - begin == entry.size, "'{}' has {} bytes of data, but {}[{}] takes {}", name, end - begin,
          dtype->name, fmt::join(entry.shape, ","), entry.size);
  entry.offset = data_begin + static_cast<size_t>(begin);
  return entry;
}

// The tensor's place in kDtypes, or kDtypes.size().
size_t rank_of(const at::Tensor& tensor) {
  size_t rank = 0;
  while (rank < kDtypes.size() && kDtypes[rank].type != tensor.scalar_type()) ++rank;
  return rank;
}

// Why the format cannot hold the tensor, or nothing.
std::optional<std::string> obstacle(const std::string& name, const at::Tensor& tensor) {
  if (name == kMetadataKey) return "has the name the format reserves for metadata";
  if (!tensor.defined()) return "is undefined";
  if (tensor.is_quantized()) return "is quantized; dequantize() it first";
  if (tensor.layout() != at::kStrided) return "is sparse or of another layout; to_dense() it first";
  if (tensor.is_nested()) return "is a nested tensor; save its parts";
  if (tensor.is_meta()) return "is on the meta device and has no values";
  if (rank_of(tensor) == kDtypes.size()) {
    return fmt::format("is of dtype {}, which the format does not have; convert it first",
                       c10::toString(tensor.scalar_type()));
  }
  return std::nullopt;
}

std::string json_string(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    TORCH_CHECK(false, "[save_safetensors] '", text, "' is not UTF-8; names and metadata must be");
  }
}

std::string make_header(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) pairs.push_back(json_string(key) + ":" + json_string(value));
    members.push_back(fmt::format("\"{}\":{{{}}}", kMetadataKey, fmt::join(pairs, ",")));
  }
  size_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    const size_t end = begin + tensor.nbytes();
    members.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  json_string(name), kDtypes[rank_of(tensor)].name,
                                  fmt::join(tensor.sizes(), ","), begin, end));
    begin = end;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(members, ","));
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data behind it is then aligned for every dtype
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(std::make_shared<MappedFile>(path, "SafetensorsFile")) {
  try {
    parse();
  } catch (const Malformed& malformed) {
    TORCH_CHECK(false, "[SafetensorsFile] '", path_.string(), "': ", malformed.reason.substr(0, kMaxReason),
                "; it is damaged, incomplete or no safetensors file: fetch or save it again");
  }
}

void SafetensorsFile::parse() {
  const size_t file_size = file_->size();
  require(file_size >= kLengthBytes, "the file has {} bytes, too few for a header", file_size);
  uint64_t length = 0;
  std::memcpy(&length, file_->data(), kLengthBytes);
  require(length <= kMaxHeaderBytes, "the header would be {} bytes long, the most allowed is {}", length,
          kMaxHeaderBytes);
  require(length <= file_size - kLengthBytes, "the header would be {} bytes long, but the file has {}",
          length, file_size);

  const size_t data_begin = kLengthBytes + static_cast<size_t>(length);
  const json header = parse_json({file_->data() + kLengthBytes, static_cast<size_t>(length)});
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != kMetadataKey) {
      entries.emplace_back(name, parse_entry(name, value, data_begin, file_size - data_begin));
      continue;
    }
    require(value.is_object(), "{} is not an object", kMetadataKey);
    for (const auto& [key, text] : value.items()) {
      require(text.is_string(), "{} has a value that is not a string, of '{}'", kMetadataKey, key);
      metadata_.emplace(key, text.get<std::string>());
    }
  }

  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.offset, a.second.size) < std::tie(b.second.offset, b.second.size);
  });
  size_t covered = data_begin;
  for (auto& [name, entry] : entries) {
    require(entry.offset >= covered, "the data of '{}' overlaps that of another tensor", name);
    require(entry.offset == covered, "there is a hole of {} bytes before the data of '{}'",
            entry.offset - covered, name);
    covered = entry.offset + entry.size;
    const char* bytes = file_->data() + entry.offset;
    // Any other value in a bool is undefined behaviour for whoever reads it.
    require(entry.dtype != at::kBool ||
                std::all_of(bytes, bytes + entry.size, [](char byte) { return byte == 0 || byte == 1; }),
            "'{}' is BOOL, but has bytes other than 0 and 1", name);
    entries_.insert(name, std::move(entry));
  }
  require(covered == file_size, "{} bytes at the end belong to no tensor", file_size - covered);
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry* entry = entries_.find(name);
  TORCH_CHECK(entry != nullptr, "[SafetensorsFile::tensor] '", path_.string(), "' has no tensor '", name,
              "'; see entries() for the ", entries_.size(), " it has");
  char* data = file_->data() + entry->offset;
  const auto options = at::TensorOptions().dtype(entry->dtype);
  if (entry->size > 0 && reinterpret_cast<uintptr_t>(data) % c10::elementSize(entry->dtype) == 0) {
    return at::from_blob(data, entry->shape, [file = file_](void*) {}, options);
  }
  at::Tensor copy = at::empty(entry->shape, options);
  if (entry->size > 0) std::memcpy(copy.mutable_data_ptr(), data, entry->size);
  return copy;
}

StateDict SafetensorsFile::tensors() const {
  StateDict result("Tensor");
  result.reserve(entries_.size());
  for (const auto& entry : entries_) result.insert(entry.key(), tensor(entry.key()));
  return result;
}

void save_safetensors(const StateDict& tensors, const std::filesystem::path& path,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, at::Tensor>> sorted;
  for (const auto& item : tensors) {
    const auto reason = obstacle(item.key(), item.value());
    TORCH_CHECK(!reason, "[save_safetensors] cannot write '", path.string(), "': tensor '", item.key(), "' ",
                *reason);
    sorted.emplace_back(item.key(), item.value().detach());
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const size_t rank_a = rank_of(a.second), rank_b = rank_of(b.second);
    return rank_a != rank_b ? rank_a > rank_b : a.first < b.first;
  });
  const std::string header = make_header(sorted, metadata);
  TORCH_CHECK(header.size() <= kMaxHeaderBytes, "[save_safetensors] cannot write '", path.string(),
              "': its header would have ", header.size(), " bytes, the format allows ", kMaxHeaderBytes,
              "; save fewer tensors or less metadata");

  AtomicFile file(path, "save_safetensors");
  const uint64_t length = header.size();
  file.write(&length, kLengthBytes);
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : sorted) {
    // A lazy conjugate or negation is only a flag on the tensor; its bytes do not show it.
    const at::Tensor plain = tensor.cpu().resolve_conj().resolve_neg().contiguous();
    file.write(plain.const_data_ptr(), plain.nbytes());
  }
  file.commit();
}

}  // namespace tpgm

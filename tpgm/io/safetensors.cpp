// Parses the header of a safetensors file and checks all rules of the format.
#include "tpgm/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tpgm/base/error_text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/dtypes.h"
#include "tpgm/io/safetensors_format.h"

namespace tpgm {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

using json = nlohmann::json;

constexpr size_t kMaxRank = 64;

// Receives the events of the JSON parser. Unlike a document tree, this takes no memory for unknown fields,
// and it sees duplicate keys.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  HeaderReader(SafetensorsHeader& header, size_t data_begin, size_t file_size, MemoryBudget& budget)
      : header_(header), data_begin_(data_begin), data_size_(file_size - data_begin), budget_(budget) {}

  bool key(std::string& key) override {
    if (skipped_ > 0) return true;
    if (where_ == Where::kTop) {
      name_ = key;
      require(key != kSafetensorsMetadata || !metadata_seen_, "the header has the key '{}' twice",
              kSafetensorsMetadata);
      budget_.charge(6 * key.size() + 960);  // once here and once in a Checkpoint
    } else if (where_ == Where::kMetadata) {
      name_ = key;
      budget_.charge(2 * key.size() + 192);
    } else {
      field_ = key == "dtype"          ? Field::kDtype
               : key == "shape"        ? Field::kShape
               : key == "data_offsets" ? Field::kOffsets
                                       : Field::kOther;
      auto& seen = seen_[static_cast<size_t>(field_)];
      require(!seen || field_ == Field::kOther, "'{}' has the key '{}' twice", printable(name_), key);
      seen = true;
    }
    return true;
  }

  bool start_object(size_t) override {
    if (skip_into()) return true;
    if (where_ == Where::kNothing) {
      where_ = Where::kTop;
    } else {
      require(where_ == Where::kTop, "expected {}, found an object", expected());
      where_ = name_ == kSafetensorsMetadata ? Where::kMetadata : Where::kTensor;
      metadata_seen_ = metadata_seen_ || where_ == Where::kMetadata;
      dtype_.reset();
      shape_.clear();
      offsets_.clear();
      seen_ = {};
    }
    return true;
  }

  bool end_object() override {
    if (skip_out()) return true;
    if (where_ == Where::kTensor) finish_tensor();
    where_ = where_ == Where::kTop ? Where::kNothing : Where::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (skip_into()) return true;
    require(where_ == Where::kTensor && (field_ == Field::kShape || field_ == Field::kOffsets) && !in_array_,
            "expected {}, found an array", expected());
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    if (!skip_out()) in_array_ = false;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (skips()) return true;
    if (!in_array_) require(false, "expected {}, found {}", expected(), value);
    require(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
            "a size or offset of '{}' is {}, which overflows 63 bits", printable(name_), value);
    auto& numbers = field_ == Field::kShape ? shape_ : offsets_;
    require(numbers.size() < kMaxRank, "'{}' has more than {} dimensions", printable(name_), kMaxRank);
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& text) override {
    if (skips()) return true;
    if (where_ == Where::kMetadata) {
      budget_.charge(2 * text.size());
      require(header_.metadata.emplace(name_, text).second, "{} has the key '{}' twice", kSafetensorsMetadata,
              printable(name_));
      return true;
    }
    require(where_ == Where::kTensor && field_ == Field::kDtype, "expected {}, found '{}'", expected(),
            printable(text));
    dtype_ = dtype_from_name(text);
    require(dtype_.has_value(), "the dtype '{}' of '{}' is unknown", printable(text), printable(name_));
    return true;
  }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a bool"); }
  bool number_integer(int64_t) override { return other("a negative number"); }
  bool number_float(double, const std::string&) override { return other("a fraction"); }
  bool binary(json::binary_t&) override { return other("binary"); }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    throw Malformed{fmt::format("byte {}: the header is not JSON: {}", kSafetensorsLengthBytes + position,
                                json_reason(error))};
  }

 private:
  enum class Where { kNothing, kTop, kMetadata, kTensor };
  enum class Field { kDtype, kShape, kOffsets, kOther };

  // Unknown fields of a tensor are ignored, as in the reference implementation.
  bool skips() const { return skipped_ > 0 || (where_ == Where::kTensor && field_ == Field::kOther); }
  bool skip_into() {
    if (skips()) ++skipped_;
    return skipped_ > 0;
  }
  bool skip_out() { return skipped_ > 0 && skipped_-- > 0; }

  bool other(const char* what) const {
    require(skips(), "expected {}, found {}", expected(), what);
    return true;
  }

  std::string expected() const {
    const std::string name = printable(name_);
    if (where_ == Where::kTop) return fmt::format("an object that describes '{}'", name);
    if (where_ == Where::kMetadata)
      return fmt::format("a string under '{}' of {}", name, kSafetensorsMetadata);
    if (field_ == Field::kDtype) return fmt::format("a string as the dtype of '{}'", name);
    if (field_ == Field::kShape) return fmt::format("non-negative integers as the shape of '{}'", name);
    return fmt::format("two non-negative integers as the data_offsets of '{}'", name);
  }

  void finish_tensor() {
    for (const auto& [field, key] : {std::pair{Field::kDtype, "dtype"}, std::pair{Field::kShape, "shape"},
                                     std::pair{Field::kOffsets, "data_offsets"}}) {
      require(seen_[static_cast<size_t>(field)], "'{}' has no '{}'", printable(name_), key);
    }
    require(dtype_.has_value(), "the dtype of '{}' is not a string", printable(name_));
    require(offsets_.size() == 2, "expected two data_offsets of '{}', found {}", printable(name_),
            offsets_.size());
    budget_.charge(shape_.size() * sizeof(int64_t));
    TensorEntry entry{*dtype_, shape_, {}, 0, 0};
    try {
      bytes_of_shape(shape_, *dtype_);
    } catch (Malformed& malformed) {
      malformed.reason = fmt::format("'{}': {}", printable(name_), malformed.reason);
      throw;
    }
    entry.size = entry.nbytes();
    const auto begin = static_cast<uint64_t>(offsets_[0]), end = static_cast<uint64_t>(offsets_[1]);
    require(begin <= end, "the data of '{}' begins at {} and ends before, at {}", printable(name_), begin,
            end);
    require(end <= data_size_, "the data of '{}' ends at {}, but the file has only {} bytes of data",
            printable(name_), end, data_size_);
    require(end - begin == entry.size, "'{}' has {} bytes of data, but {}[{}] takes {}", printable(name_),
            end - begin, dtype_name(*dtype_), fmt::join(shape_, ","), entry.size);
    entry.offset = data_begin_ + begin;
    names_.add(name_);
    require(!header_.entries.contains(name_), "the header has the key '{}' twice", printable(name_));
    header_.entries.insert(name_, std::move(entry));
  }

  SafetensorsHeader& header_;
  size_t data_begin_, data_size_;
  MemoryBudget& budget_;
  NameGuard names_;
  Where where_ = Where::kNothing;
  Field field_ = Field::kOther;
  size_t skipped_ = 0;  // depth in an ignored field
  bool in_array_ = false;
  bool metadata_seen_ = false;
  std::string name_;
  std::optional<at::ScalarType> dtype_;
  std::vector<int64_t> shape_, offsets_;
  std::array<bool, 4> seen_{};
};

// Checks that the data of all tensors, in order, leaves no overlap, no gap and no rest.
void check_coverage(SafetensorsHeader& header, std::string_view file, size_t data_begin,
                    MemoryBudget& budget) {
  std::vector<std::pair<std::string, TensorEntry>> sorted;
  sorted.reserve(header.entries.size());
  for (auto& item : header.entries) sorted.emplace_back(item.key(), std::move(item.value()));
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.offset, a.second.size) < std::tie(b.second.offset, b.second.size);
  });
  header.entries.clear();
  size_t covered = data_begin;
  for (auto& [name, entry] : sorted) {
    require(entry.offset >= covered, "byte {}: the data of '{}' overlaps that of another tensor",
            entry.offset, printable(name));
    require(entry.offset == covered, "byte {}: there is a hole of {} bytes before the data of '{}'", covered,
            entry.offset - covered, printable(name));
    covered = entry.offset + entry.size;
    const auto bytes = file.substr(entry.offset, entry.size);
    if (entry.dtype == at::kBool) budget.charge(bytes.size());
    // Reading a bool with another value would be undefined behavior.
    require(entry.dtype != at::kBool ||
                std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0 || byte == 1; }),
            "'{}' is BOOL, but has bytes other than 0 and 1", printable(name));
    header.entries.insert(std::move(name), std::move(entry));
  }
  require(covered == file.size(), "byte {}: {} bytes at the end belong to no tensor", covered,
          file.size() - covered);
}

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view file) {
  MemoryBudget budget(file.size());
  return parse_safetensors(file, budget);
}

SafetensorsHeader parse_safetensors(std::string_view file, MemoryBudget& budget) {
  Cursor cursor(file);
  const auto length = cursor.number<uint64_t>("the length of the header");
  require(length <= kSafetensorsMaxHeader,
          "byte 0: the header would be {} bytes long, the most allowed is {}", length, kSafetensorsMaxHeader);
  const auto text = cursor.take(static_cast<size_t>(length), "the header");
  SafetensorsHeader header;
  budget.charge(text.size());
  HeaderReader reader(header, cursor.position(), file.size(), budget);
  check_json_text(text, kSafetensorsLengthBytes);
  json::sax_parse(text, &reader);
  check_coverage(header, file, cursor.position(), budget);
  return header;
}

}  // namespace tpgm

// Parses the index: only its "weight_map", the rest is ignored.
#include "tpgm/io/shard_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tpgm/base/error_text.h"
#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

using json = nlohmann::json;

constexpr size_t kMaxFileName = 255;  // the limit of file systems

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFileName && name != "." && name != ".." &&
         std::none_of(name.begin(), name.end(), [](char letter) {
           return letter == '/' || letter == '\\' || static_cast<unsigned char>(letter) < 0x20 ||
                  letter == 0x7f;
         });
}

// Builds no document tree, so nesting takes no memory.
class IndexReader final : public nlohmann::json_sax<json> {
 public:
  explicit IndexReader(MemoryBudget& budget) : budget_(budget) {}

  bool start_object(size_t) override {
    ++depth_;
    if (depth_ == 2 && key_ == "weight_map") {
      require(!seen, "it has the key 'weight_map' twice");
      seen = inside_ = true;
    } else {
      expect_outside("an object");
    }
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2) inside_ = false;
    return true;
  }
  bool key(std::string& key) override {
    if (depth_ == 1 || inside_) key_ = key;
    return true;
  }
  bool string(std::string& file) override {
    if (!inside_) return true;
    require(is_file_name(file), "the index puts '{}' in '{}', which is not a file beside the index",
            printable(key_), printable(file));
    budget_.charge(key_.size() + file.size() + 200);
    names_.add(key_);
    require(weight_map.emplace(key_, file).second, "it has the tensor '{}' twice", printable(key_));
    return true;
  }

  bool start_array(size_t) override { return ++depth_, expect_outside("an array"); }
  bool end_array() override { return --depth_, true; }
  bool null() override { return expect_outside("null"); }
  bool boolean(bool) override { return expect_outside("a bool"); }
  bool number_integer(int64_t) override { return expect_outside("a number"); }
  bool number_unsigned(uint64_t) override { return expect_outside("a number"); }
  bool number_float(double, const std::string&) override { return expect_outside("a number"); }
  bool binary(json::binary_t&) override { return expect_outside("binary"); }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    throw Malformed{fmt::format("byte {}: not JSON: {}", position, json_reason(error))};
  }

  bool seen = false;
  std::unordered_map<std::string, std::string> weight_map;

 private:
  bool expect_outside(const char* what) const {
    require(!inside_, "expected the file of '{}' in 'weight_map', found {}", printable(key_), what);
    return true;
  }

  MemoryBudget& budget_;
  NameGuard names_;
  size_t depth_ = 0;
  bool inside_ = false;
  std::string key_;
};

}  // namespace

std::unordered_map<std::string, std::string> parse_shard_index(std::string_view text) {
  MemoryBudget budget(text.size());
  return parse_shard_index(text, budget);
}

std::unordered_map<std::string, std::string> parse_shard_index(std::string_view text, MemoryBudget& budget) {
  budget.charge(text.size());
  check_json_text(text, 0);
  IndexReader reader(budget);
  json::sax_parse(text, &reader);
  require(reader.seen && !reader.weight_map.empty(),
          "expected 'weight_map' with the tensors and their files");
  return std::move(reader.weight_map);
}

}  // namespace tpgm

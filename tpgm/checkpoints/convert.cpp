// Conversion from file to file.
#include "tpgm/checkpoints/convert.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/io/dtypes.h"
#include "tpgm/io/safetensors_writer.h"

namespace tpgm {
namespace {

// In addition to the names of PyTorch and safetensors.
constexpr std::array<std::pair<std::string_view, at::ScalarType>, 6> kShortNames{
    {{"fp64", at::kDouble},
     {"fp32", at::kFloat},
     {"fp16", at::kHalf},
     {"bf16", at::kBFloat16},
     {"fp8_e4m3", at::kFloat8_e4m3fn},
     {"fp8_e5m2", at::kFloat8_e5m2}}};

// What each `*` of the pattern matches in `text`, the first as short as possible; no value if the pattern
// does not match.
std::optional<std::vector<std::string>> match(std::string_view pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return pattern == text ? std::optional(std::vector<std::string>()) : std::nullopt;
  }
  if (!text.starts_with(pattern.substr(0, star))) return std::nullopt;
  const auto rest = pattern.substr(star + 1);
  for (size_t length = 0; star + length <= text.size(); ++length) {
    auto others = match(rest, text.substr(star + length));
    if (!others) continue;
    others->insert(others->begin(), std::string(text.substr(star, length)));
    return others;
  }
  return std::nullopt;
}

std::string substitute(std::string_view pattern, const std::vector<std::string>& texts) {
  std::string result;
  size_t used = 0;
  for (const char letter : pattern) {
    if (letter == '*') {
      result += texts[used++];
    } else {
      result += letter;
    }
  }
  return result;
}

size_t stars(std::string_view pattern) {
  return static_cast<size_t>(std::count(pattern.begin(), pattern.end(), '*'));
}

// Old and new names of the tensors to keep.
std::vector<std::pair<std::string, std::string>> plan_names(const Checkpoint& input,
                                                            const ConvertOptions& options) {
  check_globs("`only`", options.only(), input.names());
  check_globs("`exclude`", options.exclude(), input.names());
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& name : input.names()) {
    if (!options.only().empty() && !matches_any(options.only(), name)) continue;
    if (!matches_any(options.exclude(), name)) names.emplace_back(name, name);
  }
  TORCH_CHECK(!names.empty() || input.names().empty(), "`only` and `exclude` leave nothing of '",
              input.path().string(), "'");
  for (const auto& [from, to] : options.renames()) {
    TORCH_CHECK(stars(to) <= stars(from), "`rename` '", from, "=", to, "' has more stars on the right");
    bool used = false;
    for (auto& [old, name] : names) {
      if (const auto texts = match(from, name)) {
        name = substitute(to, *texts);
        used = true;
      }
    }
    std::vector<std::string> current;
    for (const auto& each : names) current.push_back(each.second);
    TORCH_CHECK(used, "`rename` '", from, "=", to, "' matches no name", the_nearest(from, current));
  }
  std::set<std::string> seen;
  for (const auto& [old, name] : names) {
    TORCH_CHECK((!name.empty() || old.empty()) && seen.insert(name).second, "renaming makes '", old,
                "' into '", name,
                name.empty() ? "', which is not a name" : "', which another tensor is called already");
  }
  return names;
}

// The smallest number that overflows in a type; infinity for types in which none does.
double overflow_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return std::ldexp(2 - std::ldexp(1, -24), 127);
    case at::kBFloat16:
      return std::ldexp(2 - std::ldexp(1, -8), 127);
    case at::kHalf:
      return 65520;
    case at::kFloat8_e4m3fn:
      return 464;
    case at::kFloat8_e5m2:
      return 61440;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

bool overflows(const at::Tensor& vector, at::ScalarType to) {
  const at::Tensor values = vector.to(at::kDouble).abs();
  return (values.ge(overflow_of(to)) & at::isfinite(values)).any().item<bool>();
}

}  // namespace

Converted convert_checkpoint(const Checkpoint& input, const std::filesystem::path& output,
                             const ConvertOptions& options, const Progress& progress) try {
  const auto names = plan_names(input, options);
  Provenance provenance({&input});
  const auto metadata = [&] {
    Metadata result = provenance.metadata();
    if (!options.command().empty()) keys::kCommand.set(result, options.command());
    return result;
  };
  std::vector<TensorEntry> entries;
  std::vector<TensorSpec> specs;
  Converted result;
  for (const auto& [old, name] : names) {
    entries.push_back(input.entry(old));
    const auto dtype = entries.back().dtype;
    specs.push_back({name, options.dtype() && at::isFloatingType(dtype) ? *options.dtype() : dtype,
                     entries.back().shape});
    result.bytes += static_cast<size_t>(entries.back().numel()) * c10::elementSize(specs.back().dtype);
  }
  SafetensorsWriter writer(output, specs, metadata(), options.shard_size());
  check_output(output, writer.files(), {&input});
  provenance.start();

  std::vector<std::atomic<bool>> overflowed(specs.size());
  const auto chunks = chunks_of(entries);
  for_each_chunk(chunks.size(), [&](size_t i) {
    const Chunk& chunk = chunks[i];
    const auto from = entries[chunk.tensor].dtype, to = specs[chunk.tensor].dtype;
    const at::Tensor vector = input.slice(names[chunk.tensor].first, chunk.begin, chunk.count);
    const at::Tensor converted = vector.to(to);
    // Only narrowing conversions can overflow: not those to fp64, and to fp32 only those from fp64.
    if (from != to && to != at::kDouble && (to != at::kFloat || from == at::kDouble) &&
        !overflowed[chunk.tensor] && overflows(vector, to)) {
      overflowed[chunk.tensor] = true;
    }
    writer.write(chunk.tensor, static_cast<size_t>(chunk.begin) * c10::elementSize(to),
                 converted.const_data_ptr(), converted.nbytes());
    if (progress) progress(static_cast<size_t>(chunk.count) * c10::elementSize(from));
  });
  provenance.wait();
  writer.set_metadata(metadata());
  writer.commit();
  result.files = writer.files();
  result.tensors = specs.size();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (overflowed[i]) result.overflowed.push_back(specs[i].name);
  }
  return result;
} catch (...) {
  rethrow_from("convert_checkpoint");
}

at::ScalarType parse_dtype(const std::string& text) {
  std::string name = text;
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  std::vector<std::string_view> known;
  for (const auto& [short_name, type] : kShortNames) {
    if (name == short_name) return type;
    known.push_back(short_name);
  }
  const auto type = dtype_from_torch_name(name) ? dtype_from_torch_name(name) : dtype_from_name(text);
  TORCH_CHECK(type && (*type == at::kDouble || std::isfinite(overflow_of(*type))),
              "[parse_dtype] no floating-point type '", text, "'; known are ",
              fmt::format("{}", fmt::join(known, ", ")), " and PyTorch's names");
  return *type;
}

}  // namespace tpgm

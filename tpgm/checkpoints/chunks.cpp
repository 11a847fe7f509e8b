// Chunks, threads and names.
#include "tpgm/checkpoints/chunks.h"

#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>

#include "tpgm/base/names.h"
#include "tpgm/io/mismatches.h"

namespace tpgm {
namespace {

// Small enough to stay in the L2 cache together with its results, large enough for an efficient write.
constexpr size_t kChunkBytes = size_t{1} << 20;

size_t common_names(const Checkpoint& a, const std::string& prefix_a, const Checkpoint& b,
                    const std::string& prefix_b) {
  const auto& names = a.names();
  return static_cast<size_t>(std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    const std::string whole = prefix_a + name;
    return whole.starts_with(prefix_b) && b.contains(whole.substr(prefix_b.size()));
  }));
}

}  // namespace

bool is_number(at::ScalarType dtype) { return at::isFloatingType(dtype) || at::isComplexType(dtype); }

std::vector<Chunk> chunks_of(const std::vector<TensorEntry>& tensors) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t numel = tensors[i].numel();
    const auto most = static_cast<int64_t>(kChunkBytes / c10::elementSize(tensors[i].dtype));
    for (int64_t begin = 0; begin < numel; begin += most) {
      chunks.push_back({i, begin, std::min(most, numel - begin)});
    }
  }
  return chunks;
}

void for_each_chunk(size_t n, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < n && !failed; i = next++) {
      try {
        body(i);
      } catch (...) {
        failed = true;
        throw;
      }
    }
  });
}

void align_names(Checkpoint& a, Checkpoint& b) {
  if (a.prefix() == b.prefix()) return;
  // A prefix may be a wrapper's followed by a part of the model's own names: "module.backbone.".
  const auto endings = [](const std::string& prefix) {
    std::vector<std::string> result{""};
    for (size_t at = prefix.size(); at-- > 0;) {
      if (at == 0 || prefix[at - 1] == '.') result.push_back(prefix.substr(at));
    }
    return result;
  };
  std::string best_a, best_b;
  size_t most = 0;
  for (const auto& ending_a : endings(a.prefix())) {
    for (const auto& ending_b : endings(b.prefix())) {
      const size_t common = common_names(a, ending_a, b, ending_b);
      if (common <= most) continue;
      most = common;
      best_a = ending_a;
      best_b = ending_b;
    }
  }
  a.restore_prefix(best_a.size());
  b.restore_prefix(best_b.size());
}

void check_same_tensors(const Checkpoint& a, const Checkpoint& b, const std::vector<std::string>& exclude) {
  const std::string name_a = fmt::format("'{}'", a.path().string()),
                    name_b = fmt::format("'{}'", b.path().string());
  Mismatches mismatches;
  bool strangers = true;
  for (const auto& name : b.names()) {
    if (matches_any(exclude, name)) continue;
    if (!a.contains(name)) {
      mismatches.add(name, fmt::format("is in {}, but not in {}", name_b, name_a));
      continue;
    }
    strangers = false;
    const auto &entry_a = a.entry(name), &entry_b = b.entry(name);
    if (entry_a.shape != entry_b.shape) {
      mismatches.add(name, fmt::format("is [{}] in {}, [{}] in {}", fmt::join(entry_a.shape, ","), name_a,
                                       fmt::join(entry_b.shape, ","), name_b));
    } else if (is_number(entry_b.dtype) && !c10::canCast(entry_a.dtype, entry_b.dtype)) {
      mismatches.add(name, fmt::format("is {} in {}, {} in {}", c10::toString(entry_a.dtype), name_a,
                                       c10::toString(entry_b.dtype), name_b));
    }
  }
  for (const auto& name : a.names()) {
    if (matches_any(exclude, name) || b.contains(name)) continue;
    mismatches.add(name, fmt::format("is in {}, but not in {}", name_a, name_b));
  }
  if (mismatches.empty()) return;
  const std::string way_out =
      strangers ? "no name is common to both: are they checkpoints of one architecture?"
                : fmt::format("leave {} out with {}", mismatches.size() == 1 ? "it" : "them",
                              fmt::join(mismatches.globs("`exclude` '", "'"), " "));
  TORCH_CHECK(false, mismatches.text("", way_out));
}

void check_output(const std::filesystem::path& output, const std::vector<std::filesystem::path>& files,
                  const std::vector<const Checkpoint*>& inputs) {
  TORCH_CHECK(output.extension() == ".safetensors", "cannot write '", output.string(),
              "': only safetensors are written; name it *.safetensors");
  for (const auto& file : files) {
    for (const Checkpoint* input : inputs) {
      for (const auto& source : input->files()) {
        std::error_code error;
        TORCH_CHECK(!std::filesystem::equivalent(source, file, error), "the output '", file.string(),
                    "' is an input; choose another name");
      }
    }
  }
}

}  // namespace tpgm

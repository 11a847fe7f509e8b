// Telling formats apart, finding the checkpoint in a folder, putting shards together, cutting prefixes.
#include "tpgm/io/checkpoint.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "tpgm/io/safetensors.h"
#include "tpgm/io/shard_index.h"
#include "tpgm/io/torch_file.h"
#include "tpgm/io/untrusted.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr size_t kMaxIndexBytes = size_t{100} << 20;

// What wrappers put before the names of the model they wrap.
constexpr std::array<std::string_view, 3> kPrefixes{"module.", "_orig_mod.", "backbone."};
constexpr std::string_view kCompiled = "._orig_mod.";

// What a folder is opened by, in this order: a run's checkpoints, then the names Hugging Face uses.
constexpr std::array<std::string_view, 8> kKnownFiles{"best.safetensors",
                                                      "last.safetensors",
                                                      "model.safetensors",
                                                      "model.safetensors.index.json",
                                                      "pytorch_model.bin",
                                                      "pytorch_model.bin.index.json",
                                                      "open_clip_model.safetensors",
                                                      "open_clip_pytorch_model.bin"};
// And if none of these is there, by the only file with such a suffix.
constexpr std::array<std::string_view, 7> kSuffixes{
    ".safetensors.index.json", ".safetensors", ".bin.index.json", ".bin", ".pt", ".pth", ".ckpt"};

fs::path find_in(const fs::path& folder, const char* call) {
  for (const auto name : kKnownFiles) {
    if (fs::is_regular_file(folder / name)) return folder / name;
  }
  std::set<fs::path> files;
  for (const auto& item : fs::directory_iterator(folder)) {
    if (item.is_regular_file() && !item.path().filename().string().starts_with('.'))
      files.insert(item.path());
  }
  std::vector<std::string> candidates;
  for (const auto suffix : kSuffixes) {
    std::vector<fs::path> matching;
    std::copy_if(files.begin(), files.end(), std::back_inserter(matching),
                 [&](const fs::path& file) { return file.filename().string().ends_with(suffix); });
    if (matching.size() == 1 && candidates.empty()) return matching.front();
    for (const auto& file : matching) candidates.push_back(fmt::format("'{}'", file.filename().string()));
  }
  TORCH_CHECK(!candidates.empty(), "[", call, "] the folder '", folder.string(),
              "' has no checkpoint in it (*.safetensors, *.pt, *.pth, *.bin); name the file");
  candidates.resize(std::min<size_t>(candidates.size(), 10));
  TORCH_CHECK(false, "[", call, "] the folder '", folder.string(), "' has several checkpoints, ",
              fmt::format("{}", fmt::join(candidates, ", ")), "; name the one you mean");
}

// What is in the place of a checkpoint.
Malformed unknown(std::string_view file) {
  if (file.empty()) return {"the file is empty"};
  if (file.starts_with("version https://git-lfs")) {
    return {"it is a pointer of Git LFS, not the file itself", "run 'git lfs pull' where it was cloned"};
  }
  if (file.size() > 262 && file.substr(257, 5) == "ustar") {
    return {"it is a tar archive, as PyTorch wrote before 0.1.10", "load and save it with a newer PyTorch"};
  }
  if (file.starts_with("<")) return {"it is a web page, not a checkpoint", "download the file itself"};
  return {"it is no checkpoint: neither safetensors nor a file of PyTorch's",
          "expected *.safetensors, *.pt, *.pth, *.bin or a folder of them"};
}

bool looks_like_safetensors(std::string_view file) { return file.size() > 8 && file[8] == '{'; }

}  // namespace

Checkpoint::Checkpoint(const fs::path& path, const std::string& key, const char* call)
    : path_(path), call_(call) {
  std::error_code error;
  fs::path file = path;
  if (fs::is_directory(path, error)) {
    file = find_in(path, call);
    notes_.push_back(fmt::format("took '{}' of the folder", file.filename().string()));
  }
  if (file.filename().string().ends_with(kIndexSuffix)) {
    open_shards(file, key);
  } else {
    open(file, key);
  }
  cut_prefixes();
}

void Checkpoint::open(const fs::path& file, const std::string& key) {
  const auto mapping = std::make_shared<const MappedFile>(file, call_);
  files_.push_back(file);
  mappings_.push_back(mapping);
  const auto bytes = mapping->bytes();
  try {
    if (looks_like_safetensors(bytes)) {
      require(key.empty(), "safetensors has no keys to choose from, such as '{}'", key);
      SafetensorsHeader header = parse_safetensors(bytes);
      if (metadata_.empty()) metadata_ = std::move(header.metadata);
      for (auto& item : header.entries) add(item.key(), std::move(item.value()));
      format_ = "safetensors";
    } else if (looks_like_torch_file(bytes)) {
      TorchFile parsed = parse_torch_file(bytes, key);
      for (auto& item : parsed.entries) add(item.key(), std::move(item.value()));
      format_ = std::move(parsed.format);
      for (auto& note : parsed.notes) {
        if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(std::move(note));
      }
    } else {
      throw unknown(bytes);
    }
  } catch (const Malformed& malformed) {
    refuse(call_, file, malformed);
  }
}

void Checkpoint::open_shards(const fs::path& index, const std::string& key) {
  const auto mapping = std::make_shared<const MappedFile>(index, call_);
  const MappedFile& text = *mapping;
  files_.push_back(index);
  mappings_.push_back(mapping);
  try {
    require(text.size() <= kMaxIndexBytes, "the index has {} bytes, more than the {} expected at most",
            text.size(), kMaxIndexBytes);
    const auto weight_map = parse_shard_index(text.bytes());
    std::set<std::string> shards;
    for (const auto& [name, shard] : weight_map) shards.insert(shard);
    for (const auto& shard : shards) {
      const size_t first = names_.size();
      if (!fs::exists(index.parent_path() / shard)) {
        throw Malformed{fmt::format("the shard '{}' is missing", printable(shard)), "fetch it"};
      }
      open(index.parent_path() / shard, key);
      for (size_t i = first; i < names_.size(); ++i) {
        const auto found = weight_map.find(names_[i]);
        require(found != weight_map.end() && found->second == shard,
                "'{}' has the tensor '{}', and the index does not say so", shard, printable(names_[i]));
      }
    }
    for (const auto& [name, shard] : weight_map) {
      require(contains(name), "tensor '{}' should be in '{}', and is not", printable(name), shard);
    }
    format_ += fmt::format(", {} shards", shards.size());
  } catch (const Malformed& malformed) {
    refuse(call_, index, malformed);
  }
}

void Checkpoint::add(const std::string& name, TensorEntry entry) {
  require(places_.emplace(name, Place{mappings_.size() - 1, std::move(entry)}).second,
          "tensor '{}' is there twice", printable(name));
  names_.push_back(name);
}

void Checkpoint::cut_prefixes() {
  std::vector<std::string> names = names_;
  size_t compiled = 0;
  for (auto& name : names) {
    size_t at = 0;
    while ((at = name.find(kCompiled, at)) != std::string::npos) {
      name.erase(at + 1, kCompiled.size() - 1);
      ++compiled;
    }
  }
  if (compiled > 0) notes_.push_back(fmt::format("cut '{}' out of {} names", kCompiled.substr(1), compiled));
  for (bool again = !names.empty(); again;) {
    again = false;
    for (const auto prefix : kPrefixes) {
      if (!std::all_of(names.begin(), names.end(), [&](const std::string& name) {
            return name.size() > prefix.size() && name.starts_with(prefix);
          })) {
        continue;
      }
      for (auto& name : names) name.erase(0, prefix.size());
      prefix_ += prefix;
      again = true;
    }
  }
  if (!prefix_.empty()) notes_.push_back(fmt::format("cut '{}' off all names", prefix_));
  if (compiled > 0 || !prefix_.empty()) rename_all(names);
}

void Checkpoint::restore_prefix() {
  std::vector<std::string> names = names_;
  for (auto& name : names) name.insert(0, prefix_);
  rename_all(names);
  std::erase(notes_, fmt::format("cut '{}' off all names", prefix_));
  prefix_.clear();
}

void Checkpoint::rename_all(const std::vector<std::string>& names) {
  std::unordered_map<std::string, Place> renamed;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool fresh = renamed.emplace(names[i], std::move(places_.at(names_[i]))).second;
    TORCH_CHECK(fresh, "[", call_, "] '", path_.string(), "': '", names_[i],
                "' is there with and without a prefix of torch.compile's; rename one");
  }
  places_ = std::move(renamed);
  names_ = names;
}

const Checkpoint::Place& Checkpoint::place(const std::string& name) const {
  const auto found = places_.find(name);
  TORCH_CHECK(found != places_.end(), "[", call_, "] '", path_.string(), "' has no tensor '", name,
              "'; see names() for the ", names_.size(), " it has");
  return found->second;
}

const TensorEntry& Checkpoint::entry(const std::string& name) const { return place(name).entry; }

at::Tensor Checkpoint::tensor(const std::string& name) const {
  const Place& found = place(name);
  try {
    return tensor_at(mappings_[found.file], found.entry);
  } catch (const Malformed& malformed) {
    refuse(call_, path_,
           {fmt::format("tensor '{}': {}", printable(name), malformed.reason), malformed.advice});
  }
}

at::Tensor Checkpoint::slice(const std::string& name, int64_t begin, int64_t count) const {
  const Place& found = place(name);
  TORCH_CHECK(
      begin >= 0 && count >= 0 && begin <= found.entry.numel() && count <= found.entry.numel() - begin, "[",
      call_, "] elements ", begin, " to ", begin + count, " of '", name, "', which has ",
      found.entry.numel());
  try {
    return slice_at(mappings_[found.file], found.entry, begin, count);
  } catch (const Malformed& malformed) {
    refuse(call_, path_,
           {fmt::format("tensor '{}': {}", printable(name), malformed.reason), malformed.advice});
  }
}

StateDict Checkpoint::tensors() const {
  StateDict result("Tensor");
  result.reserve(names_.size());
  for (const auto& name : names_) result.insert(name, tensor(name));
  return result;
}

}  // namespace tpgm

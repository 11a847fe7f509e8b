// Detects formats, finds the checkpoint in a folder, joins shards, and removes prefixes.
#include "tpgm/io/checkpoint.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/io/shard_index.h"
#include "tpgm/io/torch_file.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr size_t kMaxIndexBytes = size_t{100} << 20;

// The prefixes that wrappers add to the names of the model they wrap.
constexpr std::array<std::string_view, 3> kPrefixes{"module.", "_orig_mod.", "backbone."};
constexpr std::string_view kCompiled = "._orig_mod.";

// The files by which a folder is opened, in this order: checkpoints of a run, then the names Hugging Face
// uses.
constexpr std::array<std::string_view, 8> kKnownFiles{"best.safetensors",
                                                      "last.safetensors",
                                                      "model.safetensors",
                                                      "model.safetensors.index.json",
                                                      "pytorch_model.bin",
                                                      "pytorch_model.bin.index.json",
                                                      "open_clip_model.safetensors",
                                                      "open_clip_pytorch_model.bin"};
// Without any of these, the only file with such a suffix.
constexpr std::array<std::string_view, 8> kSuffixes{
    ".safetensors.index.json", ".safetensors", ".bin.index.json", ".bin", ".pt", ".pth", ".ckpt", ".pth.tar"};

std::string shown(const fs::path& path) { return printable(path.string(), kMaxPath); }

// Files that look like checkpoints, which trainers write beside them.
constexpr std::array<std::string_view, 6> kNoCheckpoints{
    "training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state.pth"};

fs::path find_in(const fs::path& folder) {
  std::error_code error;  // ignored: a file that cannot be examined is not a candidate
  for (const auto name : kKnownFiles) {
    if (fs::is_regular_file(folder / name, error)) return folder / name;
  }
  std::set<fs::path> files;
  std::error_code failed;
  for (fs::directory_iterator item(folder, failed); !failed && item != fs::directory_iterator();
       item.increment(failed)) {
    const std::string name = item->path().filename().string();
    if (item->is_regular_file(error) && !name.starts_with('.') &&
        std::find(kNoCheckpoints.begin(), kNoCheckpoints.end(), name) == kNoCheckpoints.end()) {
      files.insert(item->path());
    }
  }
  TORCH_CHECK(!failed, "cannot read the folder '", shown(folder), "': ", failed.message());
  std::vector<std::string> candidates;
  for (const auto suffix : kSuffixes) {
    std::vector<fs::path> matching;
    std::copy_if(files.begin(), files.end(), std::back_inserter(matching),
                 [&](const fs::path& file) { return file.filename().string().ends_with(suffix); });
    if (matching.size() == 1 && candidates.empty()) return matching.front();
    for (const auto& file : matching)
      candidates.push_back(fmt::format("'{}'", printable(file.filename().string(), 60)));
  }
  TORCH_CHECK(!candidates.empty(), "the folder '", shown(folder),
              "' has no checkpoint in it (*.safetensors, *.pt, *.pth, *.bin); name the file");
  if (candidates.size() > 10) {
    candidates[9] = fmt::format("and {} more", candidates.size() - 9);
    candidates.resize(10);
  }
  TORCH_CHECK(false, "the folder '", shown(folder), "' has several checkpoints, ",
              fmt::format("{}", fmt::join(candidates, ", ")), "; name the one you mean");
}

// The error for a file that is not a checkpoint.
Malformed unknown(std::string_view file) {
  if (file.empty()) return {"the file is empty"};
  if (file.starts_with("version https://git-lfs")) {
    return {"it is a pointer of Git LFS, not the file itself", "run 'git lfs pull' where it was cloned"};
  }
  if (file.size() > 262 && file.substr(257, 5) == "ustar") {
    return {"it is a tar archive, as PyTorch wrote before 0.1.10", "load and save it with a newer PyTorch"};
  }
  if (file.starts_with("<")) return {"it is a web page, not a checkpoint", "download the file itself"};
  return {"it is not a checkpoint: neither safetensors nor a file of PyTorch's",
          "expected *.safetensors, *.pt, *.pth, *.bin or a folder of them"};
}

// Removes torch.compile's "_orig_mod." after every dot; returns how often.
size_t cut_compiled(std::string& name) {
  if (name.find(kCompiled) == std::string::npos) return 0;
  const std::string_view whole = name, part = kCompiled.substr(1);
  size_t count = 0;
  std::string rest;
  for (size_t i = 0; i < whole.size();) {
    if (i > 0 && whole[i - 1] == '.' && whole.substr(i).starts_with(part)) {
      i += part.size();
      ++count;
    } else {
      rest += whole[i++];
    }
  }
  name = std::move(rest);
  return count;
}

std::string prefix_note(const std::string& prefix) {
  return fmt::format("cut '{}' off all names", printable(prefix));
}

bool looks_like_safetensors(std::string_view file) { return file.size() > 8 && file[8] == '{'; }

// OWNER/NAME, the name of a model on a hub, unless OWNER is a folder here.
bool looks_like_hub_name(const fs::path& path) {
  const std::string name = path.filename().string();
  const bool file = std::any_of(kSuffixes.begin(), kSuffixes.end(),
                                [&](std::string_view suffix) { return name.ends_with(suffix); });
  std::error_code error;
  return !file && path.has_filename() && path.is_relative() && std::distance(path.begin(), path.end()) == 2 &&
         !fs::exists(*path.begin(), error);
}

}  // namespace

struct Checkpoint::Reading {
  MemoryBudget budget{0};
  NameGuard names;
};

Checkpoint::Checkpoint(const fs::path& path, const std::string& key) try : path_(path), key_(key) {
  std::error_code error;
  TORCH_CHECK(
      !looks_like_hub_name(path), "cannot open '", printable(path.string(), kMaxPath),
      "': No such file or directory; if it is a name on the Hugging Face hub, fetch it first ('hf download ",
      printable(path.string(), kMaxPath), " --local-dir FOLDER')");
  fs::path file = path;
  if (fs::is_directory(path, error)) {
    file = find_in(path);
    notes_.push_back(fmt::format("took '{}' of the folder", printable(file.filename().string())));
  }
  Reading reading;
  if (file.filename().string().ends_with(kIndexSuffix)) {
    open_shards(file, key, reading);
  } else {
    open(file, key, reading);
  }
  cut_prefixes();
} catch (...) {
  rethrow_from("Checkpoint");
}

void Checkpoint::open(const fs::path& file, const std::string& key, Reading& reading) {
  const auto mapping = std::make_shared<const MappedFile>(file);
  files_.push_back(file);
  mappings_.push_back(mapping);
  const auto bytes = mapping->bytes();
  reading.budget.add_file(bytes.size());
  try {
    if (looks_like_safetensors(bytes)) {
      require(key.empty(), "safetensors has no keys to choose from, such as '{}'", key);
      SafetensorsHeader header = parse_safetensors(bytes, reading.budget);
      if (metadata_.empty()) metadata_ = std::move(header.metadata);
      for (auto& item : header.entries) add(item.key(), std::move(item.value()), reading);
      format_ = "safetensors";
    } else if (looks_like_torch_file(bytes)) {
      TorchFile parsed = parse_torch_file(bytes, key, reading.budget);
      for (auto& item : parsed.entries) add(item.key(), std::move(item.value()), reading);
      format_ = std::move(parsed.format);
      for (auto& note : parsed.notes) {
        if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(std::move(note));
      }
    } else {
      throw unknown(bytes);
    }
  } catch (const Malformed& malformed) {
    refuse(file, malformed);
  }
}

void Checkpoint::open_shards(const fs::path& index, const std::string& key, Reading& reading) {
  const auto mapping = std::make_shared<const MappedFile>(index);
  const MappedFile& text = *mapping;
  files_.push_back(index);
  mappings_.push_back(mapping);
  try {
    require(text.size() <= kMaxIndexBytes, "the index has {} bytes, more than the {} expected at most",
            text.size(), kMaxIndexBytes);
    reading.budget.add_file(text.size());
    const auto weight_map = parse_shard_index(text.bytes(), reading.budget);
    std::set<std::string> shards;
    for (const auto& [name, shard] : weight_map) shards.insert(shard);
    for (const auto& shard : shards) {
      const size_t first = names_.size();
      std::error_code error;
      if (fs::status(index.parent_path() / shard, error).type() == fs::file_type::not_found) {
        throw Malformed{fmt::format("the shard '{}' is missing", printable(shard)), "fetch it"};
      }
      open(index.parent_path() / shard, key, reading);
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
    refuse(index, malformed);
  }
}

void Checkpoint::add(const std::string& name, TensorEntry entry, Reading& reading) {
  reading.names.add(name);
  require(places_.emplace(name, Place{mappings_.size() - 1, std::move(entry)}).second,
          "tensor '{}' is there twice", printable(name));
  names_.push_back(name);
}

void Checkpoint::cut_prefixes() {
  std::vector<std::string> names = names_;
  size_t compiled = 0;
  for (auto& name : names) compiled += cut_compiled(name);
  if (compiled > 0) notes_.push_back(fmt::format("cut '{}' out of {} names", kCompiled.substr(1), compiled));
  size_t cut = 0;
  for (bool again = !names.empty(); again;) {
    again = false;
    for (const auto prefix : kPrefixes) {
      if (!std::all_of(names.begin(), names.end(), [&](std::string_view name) {
            return name.size() > cut + prefix.size() && name.substr(cut).starts_with(prefix);
          })) {
        continue;
      }
      cut += prefix.size();
      again = true;
    }
  }
  if (cut > 0) {
    prefix_ = names.front().substr(0, cut);
    for (auto& name : names) name.erase(0, cut);
    notes_.push_back(prefix_note(prefix_));
  }
  if (compiled > 0 || !prefix_.empty()) rename_all(names);
}

void Checkpoint::restore_prefix(size_t length) {
  if (length == 0 || prefix_.empty()) return;
  const std::string part = prefix_.substr(prefix_.size() - std::min(length, prefix_.size()));
  std::vector<std::string> names = names_;
  for (auto& name : names) name.insert(0, part);
  rename_all(names);
  std::erase(notes_, prefix_note(prefix_));
  prefix_.resize(prefix_.size() - part.size());
  if (!prefix_.empty()) notes_.push_back(prefix_note(prefix_));
}

void Checkpoint::rename_all(const std::vector<std::string>& names) try {
  std::unordered_map<std::string, Place> renamed;
  NameGuard guard;
  for (size_t i = 0; i < names.size(); ++i) {
    try {
      guard.add(names[i]);
    } catch (const Malformed& malformed) {
      refuse(path_, malformed);
    }
    const bool fresh = renamed.emplace(names[i], std::move(places_.at(names_[i]))).second;
    TORCH_CHECK(fresh, "'", shown(path_), "': '", printable(names_[i]),
                "' is there with and without a prefix of torch.compile's; rename one");
  }
  places_ = std::move(renamed);
  names_ = names;
} catch (...) {
  rethrow_from("Checkpoint");
}

const Checkpoint::Place& Checkpoint::place(const std::string& name) const {
  const auto found = places_.find(name);
  TORCH_CHECK(found != places_.end(), "[Checkpoint] '", path_.string(), "' has no tensor '", name,
              "'; see names() for the ", names_.size(), " it has");
  return found->second;
}

const TensorEntry& Checkpoint::entry(const std::string& name) const { return place(name).entry; }

}  // namespace tpgm

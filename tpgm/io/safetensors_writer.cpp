// Writes safetensors: plans the header, allocates the space, takes the data in any order, and writes the
// header last.
#include "tpgm/io/safetensors_writer.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/io/dtypes.h"
#include "tpgm/io/safetensors_format.h"
#include "tpgm/io/tensor_entry.h"

namespace tpgm {
struct SafetensorsWriter::Impl {
  struct Shard {
    std::filesystem::path path;
    std::unique_ptr<AtomicFile> file;
    std::vector<size_t> order;  // of its tensors, as they lie in the file
    size_t header_bytes = 0;
  };
  struct Place {
    size_t shard = 0;
    size_t begin = 0;  // within the shard's data
    size_t size = 0;
    std::atomic<size_t> written = 0;
  };

  std::filesystem::path path;
  std::vector<TensorSpec> tensors;
  Metadata metadata;
  std::vector<Place> places;
  std::vector<Shard> shards;
  std::vector<std::filesystem::path> files;
  std::filesystem::path index;  // empty if there is one shard
  std::unique_ptr<AtomicFile> index_file;
  bool prepared = false;

  std::string json_string(const std::string& text) const {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      TORCH_CHECK(false, "[SafetensorsWriter] '", text, "' is not UTF-8; names and metadata must be");
    }
  }

  void check_and_measure() {
    std::set<std::string_view> names;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& tensor = tensors[i];
      TORCH_CHECK(tensor.name != kSafetensorsMetadata, "cannot write '", path.string(), "': tensor '",
                  tensor.name, "' has the name the format reserves for metadata");
      TORCH_CHECK(!dtype_name(tensor.dtype).empty(), "cannot write '", path.string(), "': tensor '",
                  tensor.name, "' is of dtype ", c10::toString(tensor.dtype),
                  ", which the format does not have; convert it first or leave it out");
      TORCH_CHECK(names.insert(tensor.name).second, "cannot write '", path.string(), "': tensor '",
                  tensor.name, "' is there twice");
      places[i].size = TensorEntry{tensor.dtype, tensor.shape, {}, 0, 0}.nbytes();
    }
  }

  void assign_shards(int64_t shard_size) {
    std::vector<std::vector<size_t>> groups(1);
    size_t bytes = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (shard_size > 0 && bytes > 0 && bytes + places[i].size > static_cast<size_t>(shard_size)) {
        groups.emplace_back();
        bytes = 0;
      }
      groups.back().push_back(i);
      bytes += places[i].size;
    }
    for (auto& group : groups) {
      std::sort(group.begin(), group.end(), [&](size_t a, size_t b) {
        const size_t rank_a = dtype_rank(tensors[a].dtype), rank_b = dtype_rank(tensors[b].dtype);
        return rank_a != rank_b ? rank_a > rank_b : tensors[a].name < tensors[b].name;
      });
      Shard& shard = shards.emplace_back();
      shard.path = path;
      if (groups.size() > 1) {
        shard.path.replace_filename(
            fmt::format("{}-{:05}-of-{:05}.safetensors", path.stem().string(), shards.size(), groups.size()));
      }
      size_t begin = 0;
      for (const size_t i : group) {
        places[i].shard = shards.size() - 1;
        places[i].begin = begin;
        begin += places[i].size;
      }
      shard.order = std::move(group);
      files.push_back(shard.path);
    }
    if (shards.size() > 1) files.push_back(index = path.string() + ".index.json");
  }

  std::string header(const Shard& shard) const {
    std::vector<std::string> members;
    if (!metadata.empty()) {
      std::vector<std::string> pairs;
      for (const auto& [key, value] : metadata) pairs.push_back(json_string(key) + ":" + json_string(value));
      members.push_back(fmt::format("\"{}\":{{{}}}", kSafetensorsMetadata, fmt::join(pairs, ",")));
    }
    for (const size_t i : shard.order) {
      members.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                    json_string(tensors[i].name), dtype_name(tensors[i].dtype),
                                    fmt::join(tensors[i].shape, ","), places[i].begin,
                                    places[i].begin + places[i].size));
    }
    std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
    text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data after it is aligned for every dtype
    return text;
  }

  std::string index_text() const {
    nlohmann::json weight_map;  // sorts by name
    size_t total = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      weight_map[tensors[i].name] = shards[places[i].shard].path.filename().string();
      total += places[i].size;
    }
    return nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}}.dump(2) + "\n";
  }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorSpec>& tensors, const Metadata& metadata,
                                     int64_t shard_size) try
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.path = path;
  impl.tensors = tensors;
  impl.metadata = metadata;
  impl.places = std::vector<Impl::Place>(tensors.size());
  impl.check_and_measure();
  impl.assign_shards(shard_size);
  TORCH_CHECK(impl.index.empty() || !std::filesystem::exists(path), "'", path.string(),
              "' exists, and readers would take it instead of the shards; remove it or choose another name");
  const std::string stale = path.string() + ".index.json";
  TORCH_CHECK(!impl.index.empty() || !std::filesystem::exists(stale), "'", stale,
              "' exists, and readers would take the shards that it lists; remove it or choose another name");
  for (auto& shard : impl.shards) {
    shard.header_bytes = impl.header(shard).size();
    TORCH_CHECK(shard.header_bytes <= kSafetensorsMaxHeader, "cannot write '", shard.path.string(),
                "': its header would have ", shard.header_bytes, " bytes, the format allows ",
                kSafetensorsMaxHeader, "; save fewer tensors or less metadata");
    size_t data = 0;
    for (const size_t i : shard.order) data += impl.places[i].size;
    shard.file = std::make_unique<AtomicFile>(shard.path);
    shard.file->reserve(kSafetensorsLengthBytes + shard.header_bytes + data);
  }
} catch (...) {
  rethrow_from("SafetensorsWriter");
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(size_t tensor, size_t offset, const void* data, size_t size) {
  Impl::Place& place = impl_->places.at(tensor);
  TORCH_CHECK(offset <= place.size && size <= place.size - offset, "[SafetensorsWriter] tensor '",
              impl_->tensors[tensor].name, "' has ", place.size, " bytes, and not ", size, " from ", offset,
              " on");
  Impl::Shard& shard = impl_->shards[place.shard];
  shard.file->write_at(kSafetensorsLengthBytes + shard.header_bytes + place.begin + offset, data, size);
  place.written += size;
}

void SafetensorsWriter::set_metadata(const Metadata& metadata) { impl_->metadata = metadata; }

void SafetensorsWriter::prepare() {
  Impl& impl = *impl_;
  if (impl.prepared) return;
  for (size_t i = 0; i < impl.tensors.size(); ++i) {
    TORCH_CHECK(impl.places[i].written == impl.places[i].size, "[SafetensorsWriter] of tensor '",
                impl.tensors[i].name, "' ", impl.places[i].written.load(), " bytes were written, and it has ",
                impl.places[i].size);
  }
  for (auto& shard : impl.shards) {
    std::string header = impl.header(shard);
    TORCH_CHECK(header.size() <= shard.header_bytes, "[SafetensorsWriter] the metadata of '",
                shard.path.string(), "' have outgrown the space that was left for them");
    header.resize(shard.header_bytes, ' ');
    const uint64_t length = header.size();
    shard.file->write_at(0, &length, kSafetensorsLengthBytes);
    shard.file->write_at(kSafetensorsLengthBytes, header.data(), header.size());
    shard.file->prepare();
  }
  if (!impl.index.empty()) {
    const std::string text = impl.index_text();
    impl.index_file = std::make_unique<AtomicFile>(impl.index);
    impl.index_file->write(text.data(), text.size());
    impl.index_file->prepare();
  }
  impl.prepared = true;
}

void SafetensorsWriter::commit() {
  Impl& impl = *impl_;
  prepare();
  // First, so that no index refers to a mix of old and new shards.
  if (!impl.index.empty()) {
    std::error_code error;
    std::filesystem::remove(impl.index, error);
    TORCH_CHECK(!error, "[SafetensorsWriter] cannot delete '", impl.index.string(), "': ", error.message(),
                "; the files that were there are intact");
  }
  for (auto& shard : impl.shards) shard.file->commit();
  if (impl.index_file) impl.index_file->commit();
}

const std::vector<std::filesystem::path>& SafetensorsWriter::files() const noexcept { return impl_->files; }

}  // namespace tpgm

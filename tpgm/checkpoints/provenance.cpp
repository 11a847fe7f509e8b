// The lineage of a checkpoint as metadata.
#include "tpgm/checkpoints/provenance.h"

#include <nlohmann/json.hpp>

#include "tpgm/io/hash.h"

namespace tpgm {
namespace {

// A folder may be given with a slash at its end.
std::string name_of(const std::filesystem::path& path) {
  const auto normal = path.lexically_normal();
  return (normal.has_filename() ? normal.filename() : normal.parent_path().filename()).string();
}

}  // namespace

Provenance::Provenance(std::string command, const std::vector<const Checkpoint*>& inputs) {
  const std::string placeholder(fingerprint({}).size(), '0');
  for (const Checkpoint* input : inputs) {
    const auto& metadata = input->metadata();
    const auto made_by = metadata.find("tpgm.command");
    inputs_.push_back(
        {name_of(input->path()), input->format(), made_by == metadata.end() ? "" : made_by->second});
    for (size_t i = 0; i < input->files().size(); ++i) {
      const auto& mapping = input->mappings()[i];
      files_.push_back({inputs_.size() - 1, input->files()[i].filename().string(), mapping->size(),
                        placeholder,
                        std::async(std::launch::async, [mapping] { return fingerprint(mapping->bytes()); })});
    }
  }
  for (const auto& [key, value] : inputs.back()->metadata()) {
    if (!key.starts_with("tpgm.")) metadata_[key] = value;
  }
  metadata_.emplace("format", "pt");
  metadata_["tpgm.version"] = TPGM_VERSION;
  metadata_["tpgm.command"] = std::move(command);
  metadata_["tpgm.inputs"] = inputs_text();
}

const Metadata& Provenance::wait() {
  for (auto& file : files_) {
    if (file.pending.valid()) file.fingerprint = file.pending.get();
  }
  metadata_["tpgm.inputs"] = inputs_text();
  return metadata_;
}

std::string Provenance::inputs_text() const {
  auto list = nlohmann::ordered_json::array();
  for (const auto& input : inputs_) {
    nlohmann::ordered_json item{
        {"name", input.name}, {"format", input.format}, {"files", nlohmann::ordered_json::array()}};
    if (!input.made_by.empty()) item["made_by"] = input.made_by;
    list.push_back(std::move(item));
  }
  for (const auto& file : files_) {
    list[file.input]["files"].push_back(
        {{"file", file.name}, {"bytes", file.bytes}, {"hash", file.fingerprint}});
  }
  return list.dump();
}

}  // namespace tpgm

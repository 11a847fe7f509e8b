// The origin of a checkpoint as metadata.
#include "tpgm/checkpoints/provenance.h"

#include <nlohmann/json.hpp>

#include "tpgm/base/untrusted.h"
#include "tpgm/base/version.h"
#include "tpgm/io/hash.h"

namespace tpgm {
namespace {

constexpr size_t kPiece = size_t{8} << 20;

}  // namespace

std::string name_of(const Checkpoint& checkpoint) {
  const auto path = checkpoint.path().lexically_normal();  // a folder may be given with a slash at its end
  return printable((path.has_filename() ? path.filename() : path.parent_path().filename()).string(), 255);
}

Provenance::Provenance(const std::vector<const Checkpoint*>& inputs) {
  const std::string zeros(Fingerprint().text().size(), '0');
  for (const Checkpoint* input : inputs) {
    Input& each = inputs_.emplace_back();
    each.name = name_of(*input);
    each.format = input->format();
    each.made_by = keys::kCommand.of(input->metadata());
    for (size_t i = 0; i < input->files().size(); ++i) {
      each.files.push_back(
          {printable(input->files()[i].filename().string(), 255), input->mappings()[i], zeros});
    }
  }
  for (const auto& [key, value] : inputs.back()->metadata()) {
    if (is_inherited(key)) metadata_[key] = value;
  }
  if (!keys::kFormat.in(metadata_)) keys::kFormat.set(metadata_, "pt");
  keys::kVersion.set(metadata_, version());
  keys::kInputs.set(metadata_, inputs_text());
}

Provenance::~Provenance() { stop_ = true; }

void Provenance::start() {
  reading_ = std::async(std::launch::async, [this] { read(); });
}

// Reads a piece of each input in turn. The merge that runs meanwhile works at about the same place, so the
// disk is read only once.
void Provenance::read() {
  struct Reader {
    size_t file = 0, offset = 0;
    Fingerprint fingerprint;
  };
  std::vector<Reader> readers(inputs_.size());
  for (bool more = true; more && !stop_;) {
    more = false;
    for (size_t i = 0; i < inputs_.size() && !stop_; ++i) {
      Reader& reader = readers[i];
      if (reader.file == inputs_[i].files.size()) continue;
      File& file = inputs_[i].files[reader.file];
      const auto piece = file.mapping->bytes().substr(reader.offset, kPiece);
      reader.fingerprint.add(piece);
      reader.offset += piece.size();
      more = true;
      if (reader.offset < file.mapping->size()) continue;
      file.fingerprint = reader.fingerprint.text();
      reader = Reader{reader.file + 1, 0, {}};
    }
  }
}

const Metadata& Provenance::wait() {
  if (reading_.valid()) reading_.get();
  keys::kInputs.set(metadata_, inputs_text());
  return metadata_;
}

std::string Provenance::inputs_text() const {
  auto list = nlohmann::ordered_json::array();
  for (const auto& input : inputs_) {
    auto files = nlohmann::ordered_json::array();
    for (const auto& file : input.files) {
      files.push_back({{"file", file.name}, {"bytes", file.mapping->size()}, {"hash", file.fingerprint}});
    }
    list.push_back({{"name", input.name}, {"format", input.format}, {"files", files}});
    if (!input.made_by.empty()) list.back()["made_by"] = input.made_by;
  }
  return list.dump();
}

}  // namespace tpgm

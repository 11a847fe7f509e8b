// Weights back into other libraries' files.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tpgm/io/file.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/models/config_json.h"
#include "tpgm/models/weights.h"

namespace tpgm {
namespace {

constexpr const char* kCall = "save_as";

// For their file: what the library reads. For ours: the model, which names alone would not tell.
Metadata metadata_for(const ModelWeights& weights, const SaveOptions& options) {
  Metadata metadata = options.metadata();
  metadata.try_emplace("format", "pt");
  metadata["tpgm.model"] = to_text(weights.config);
  return metadata;
}

}  // namespace

SavedModel save_as(const ModelWeights& weights, const std::filesystem::path& output,
                   const SaveOptions& options) {
  const Renamed theirs = from_ours(weights.tensors, weights.config, options.layout());
  TORCH_CHECK(theirs.unknown.empty(), "[", kCall, "] '", theirs.unknown.front(),
              "' has no name in the layout ", to_text(options.layout()));
  std::vector<TensorSpec> specs;
  std::vector<at::Tensor> tensors;
  SavedModel result;
  result.notes = theirs.notes;
  for (const auto& item : theirs.tensors) {
    const bool convert = options.dtype() && item.value().is_floating_point();
    tensors.push_back(item.value());
    specs.push_back(
        {item.key(), convert ? *options.dtype() : item.value().scalar_type(), item.value().sizes().vec()});
    result.bytes += static_cast<size_t>(item.value().numel()) * c10::elementSize(specs.back().dtype);
  }
  result.tensors = specs.size();

  std::error_code error;
  const bool folder = std::filesystem::is_directory(output, error);
  SafetensorsWriter writer(folder ? output / "model.safetensors" : output, specs,
                           metadata_for(weights, options), options.shard_size(), kCall);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor data = tensors[i].to(specs[i].dtype).contiguous().cpu();
    writer.write(i, 0, data.const_data_ptr(), data.nbytes());
  }
  writer.prepare();
  result.files = writer.files();
  if (options.layout() == Layout::kHuggingFace && folder) {
    AtomicFile config(output / "config.json", kCall);
    const std::string text = huggingface_config(weights.config, weights.has_text());
    config.write(text.data(), text.size());
    config.commit();
    result.files.push_back(output / "config.json");
  } else if (options.layout() == Layout::kHuggingFace) {
    result.notes.emplace_back(
        "transformers also needs a config.json, which is written only into a folder: -o DIR/");
  }
  writer.commit();
  return result;
}

}  // namespace tpgm

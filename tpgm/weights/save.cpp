#include "tpgm/weights/save.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tpgm/base/call.h"
#include "tpgm/io/file.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/models/families.h"
#include "tpgm/weights/config_json.h"
#include "tpgm/weights/preprocessing.h"

namespace tpgm {
namespace {

// For their file: what the library reads. For ours: the model, which names alone would not tell.
Metadata metadata_for(const ModelWeights& weights, const SaveOptions& options) {
  Metadata metadata = options.metadata();
  if (!keys::kFormat.in(metadata)) keys::kFormat.set(metadata, "pt");
  ModelConfig config = weights.config;
  config.recompute.reset();  // it changes how features are computed, not their values
  keys::kModel.set(metadata, to_text(config));
  if (!keys::kView.in(metadata) && weights.view != ImageView()) keys::kView.set(metadata, weights.view);
  return metadata;
}

// What their library would compute otherwise unless it is told.
std::vector<std::string> caveats(const ModelConfig& config, Layout layout) {
  std::vector<std::string> notes;
  const bool other = layout == Layout::kTorchvision || layout == Layout::kTimm;
  if (other && config.activation == Activation::kQuickGelu)
    notes.emplace_back("build it with QuickGELU there: these names do not say so");
  if (other && config.stem == Stem::kSmall)
    notes.emplace_back("build it with a 3×3 stem and no max-pool there: these names do not say so");
  if (layout == Layout::kOpenAi && config.activation == Activation::kGelu) {
    notes.emplace_back("for open_clip: a model with GELU, such as ViT-B-32, not ViT-B-32-quickgelu");
  }
  return notes;
}

void write_text(AtomicFile& file, const std::string& text) {
  file.write(text.data(), text.size());
  file.prepare();
}

bool overflowed(const at::Tensor& from, const at::Tensor& to) {
  if (from.scalar_type() == to.scalar_type() || !from.is_floating_point()) return false;
  return from.to(at::kFloat)
      .isfinite()
      .logical_and(to.to(at::kFloat).isfinite().logical_not())
      .any()
      .item<bool>();
}

}  // namespace

SavedModel save_as(const ModelWeights& weights, const std::filesystem::path& output,
                   const SaveOptions& options) try {
  const Renamed theirs = from_ours(weights.tensors, weights.config, options.layout());
  TORCH_CHECK(theirs.unknown.empty(), "'", theirs.unknown.front(), "' has no name in the layout ",
              to_text(options.layout()));
  std::vector<TensorSpec> specs;
  std::vector<at::Tensor> tensors;
  SavedModel result;
  result.notes = theirs.notes;
  for (auto& note : caveats(weights.config, options.layout())) result.notes.push_back(std::move(note));
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
                           metadata_for(weights, options), options.shard_size());
  std::vector<std::string> beyond;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor data = tensors[i].to(specs[i].dtype).contiguous().cpu();
    if (overflowed(tensors[i], data)) beyond.push_back(specs[i].name);
    writer.write(i, 0, data.const_data_ptr(), data.nbytes());
  }
  if (!beyond.empty()) {
    result.notes.push_back(fmt::format("in {} tensors values are beyond the range of the type, first in '{}'",
                                       beyond.size(), beyond.front()));
  }
  writer.prepare();
  result.files = writer.files();
  if (options.layout() != Layout::kHuggingFace) {
    writer.commit();
  } else if (!folder) {
    result.notes.emplace_back(
        "transformers also needs a config.json, which is written only into a folder: name one as the output");
    writer.commit();
  } else {
    const ModelConfig& model = weights.config;
    AtomicFile config(output / "config.json"), preprocessing(output / "preprocessor_config.json");
    write_text(config, huggingface_config(model, weights.has_text()));
    write_text(preprocessing, huggingface_preprocessing(complete(weights.view, *model.family),
                                                        model.image_size.value(), model.channels.value()));
    writer.commit();
    config.commit();
    preprocessing.commit();
    result.files.push_back(output / "config.json");
    result.files.push_back(output / "preprocessor_config.json");
    if (model.channels != 3) {
      result.notes.push_back(fmt::format(
          "the processor of transformers does not convert images to {} channels: convert them before it",
          model.channels.value()));
    }
  }
  return result;
} catch (...) {
  rethrow_from("save_as");
}

}  // namespace tpgm

// safetensors files as tensors: reads views of the mapped file, writes through the streaming writer.
#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/mapped_tensor.h"
#include "tpgm/io/safetensors.h"

namespace tpgm {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) try
    : path_(path), file_(std::make_shared<MappedFile>(path)) {
  try {
    header_ = parse_safetensors(file_->bytes());
  } catch (const Malformed& malformed) {
    refuse(path_, malformed);
  }
} catch (...) {
  rethrow_from("SafetensorsFile");
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const TensorEntry* entry = header_.entries.find(name);
  TORCH_CHECK(entry != nullptr, "[SafetensorsFile::tensor] '", path_.string(), "' has no tensor '", name,
              "'; see entries() for the ", header_.entries.size(), " it has");
  return tensor_at(file_, *entry);
}

NamedTensors SafetensorsFile::tensors() const {
  NamedTensors result("Tensor");
  for (const auto& item : header_.entries) result.insert(item.key(), tensor_at(file_, item.value()));
  return result;
}

void save_safetensors(const NamedTensors& tensors, const std::filesystem::path& path,
                      const Metadata& metadata) try {
  std::vector<TensorSpec> specs;
  for (const auto& item : tensors) {
    const at::Tensor& tensor = item.value();
    const char* reason = !tensor.defined()       ? "is undefined"
                         : tensor.is_quantized() ? "is quantized; dequantize() it first"
                         : tensor.is_nested()    ? "is a nested tensor; save its parts"
                         : tensor.layout() != at::kStrided
                             ? "is sparse or of another layout; to_dense() it first"
                         : tensor.is_meta() ? "is on the meta device and has no values"
                                            : nullptr;
    TORCH_CHECK(reason == nullptr, "cannot write '", path.string(), "': tensor '", item.key(), "' ", reason);
    specs.push_back({item.key(), tensor.scalar_type(), tensor.sizes().vec()});
  }
  SafetensorsWriter writer(path, specs, metadata);
  for (size_t i = 0; i < specs.size(); ++i) {
    // Resolves lazy conjugation and negation, which are flags on the tensor and not in its bytes.
    const at::Tensor plain = tensors[i].value().detach().cpu().resolve_conj().resolve_neg().contiguous();
    writer.write(i, 0, plain.const_data_ptr(), plain.nbytes());
  }
  writer.commit();
} catch (...) {
  rethrow_from("save_safetensors");
}

}  // namespace tpgm

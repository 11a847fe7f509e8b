#include "tpgm/core/anchor.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>

namespace tpgm {
namespace {

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

uint64_t mix_bytes(uint64_t hash, const char* bytes, size_t size) {
  uint64_t word = 0;
  size_t i = 0;
  for (; i + sizeof(word) <= size; i += sizeof(word)) {
    std::memcpy(&word, bytes + i, sizeof(word));
    hash = mix(hash, word);
  }
  word = 0;
  std::memcpy(&word, bytes + i, size - i);
  return mix(mix(hash, word), size);
}

}  // namespace

at::Tensor store_anchor(const at::Tensor& pretrained, const at::Tensor& like, AnchorStorage storage) {
  auto options = like.options().requires_grad(false);
  if (storage == AnchorStorage::kBFloat16) options = options.dtype(at::kBFloat16);
  if (storage != AnchorStorage::kHost || like.is_cpu())
    return at::empty_strided(like.sizes(), like.strides(), options).copy_(pretrained.detach());
  const auto pinned =
      at::empty_strided(like.sizes(), like.strides(), options.device(at::kCPU).pinned_memory(true));
  pinned.copy_(pretrained.detach());
  // LibTorch reuses freed pinned memory at once. It does not know that our kernels may still be reading it,
  // so freeing waits for the device.
  const auto release = [pinned, device = like.device()](void*) {
    try {
      c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    } catch (...) {  // a device that has failed does not read any more
    }
  };
  return at::from_blob(pinned.mutable_data_ptr(), pinned.sizes(), pinned.strides(), release,
                       pinned.options());
}

int64_t fingerprint(const std::vector<std::string>& names, const std::vector<at::Tensor>& anchors) {
  uint64_t hash = 0;
  for (size_t k = 0; k < names.size(); ++k) {
    hash = mix_bytes(hash, names[k].data(), names[k].size());
    for (const auto size : anchors[k].sizes()) hash = mix(hash, static_cast<uint64_t>(size));
    const auto bytes = anchors[k].to(at::kCPU).contiguous();
    if (bytes.numel() > 0)
      hash = mix_bytes(hash, static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  }
  return static_cast<int64_t>(hash);
}

}  // namespace tpgm

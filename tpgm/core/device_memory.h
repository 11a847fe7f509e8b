// Allocates the memory that kernels need beside the tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <vector>

#include "tpgm/kernels/types.h"

namespace tpgm {

/// An allocator of memory on `device`. `kept`, which must outlive it, owns the memory.
inline kernels::Memory memory_on(at::Device device, std::vector<at::Tensor>& kept) {
  return [device, &kept](size_t bytes, const void* contents) {
    const auto size = static_cast<int64_t>(bytes);
    if (contents == nullptr || bytes == 0) {
      kept.push_back(at::zeros({size}, at::TensorOptions(at::kByte).device(device)));
    } else {
      auto host = at::empty({size}, at::kByte);
      std::memcpy(host.mutable_data_ptr(), contents, bytes);
      kept.push_back(host.to(device));
    }
    return kept.back().mutable_data_ptr();
  };
}

}  // namespace tpgm

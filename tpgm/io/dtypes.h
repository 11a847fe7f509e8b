// The names that file formats give to LibTorch's scalar types.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace tpgm {

/// From a name in safetensors: "BF16" → kBFloat16; no value for names that the format or LibTorch does not
/// have.
std::optional<at::ScalarType> dtype_from_name(std::string_view name);
/// From a name in PyTorch: "bfloat16" → kBFloat16.
std::optional<at::ScalarType> dtype_from_torch_name(std::string_view name);
/// From the class of a PyTorch storage: "BFloat16Storage" → kBFloat16, "UntypedStorage" → kByte.
std::optional<at::ScalarType> dtype_from_storage(std::string_view name);

/// The name in safetensors: kBFloat16 → "BF16"; empty for types that the format does not have.
std::string_view dtype_name(at::ScalarType dtype);

/// The rank of a type in the order by which the reference implementation sorts tensors, wider types last.
size_t dtype_rank(at::ScalarType dtype);

}  // namespace tpgm

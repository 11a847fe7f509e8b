// LibTorch's types by the names that files give them.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace tpgm {

/// safetensors': "BF16" → kBFloat16; nothing for names the format or LibTorch does not have.
std::optional<at::ScalarType> dtype_from_name(std::string_view name);
/// PyTorch's: "bfloat16" → kBFloat16.
std::optional<at::ScalarType> dtype_from_torch_name(std::string_view name);
/// Of the elements of one of PyTorch's storages: "BFloat16Storage" → kBFloat16, "UntypedStorage" → kByte.
std::optional<at::ScalarType> dtype_from_storage(std::string_view name);

/// kBFloat16 → "BF16"; empty for types that safetensors does not have.
std::string_view dtype_name(at::ScalarType dtype);

/// The place of a type in the order by which the reference implementation sorts tensors, wider types last.
size_t dtype_rank(at::ScalarType dtype);

}  // namespace tpgm

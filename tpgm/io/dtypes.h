// The types of safetensors and LibTorch's, one to one.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace tpgm {

/// "BF16" → kBFloat16; nothing for names the format or LibTorch does not have.
std::optional<at::ScalarType> dtype_from_name(std::string_view name);

/// kBFloat16 → "BF16"; empty for types that safetensors does not have.
std::string_view dtype_name(at::ScalarType dtype);

/// The place of a type in the order by which the reference implementation sorts tensors, wider types last.
size_t dtype_rank(at::ScalarType dtype);

}  // namespace tpgm

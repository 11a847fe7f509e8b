// The table of types.
#include "tpgm/io/dtypes.h"

#include <algorithm>
#include <array>

namespace tpgm {
namespace {

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};

// In the reference implementation's order, which its writer sorts by, backwards: the order of our bytes too.
constexpr std::array kDtypes{
    Dtype{"BOOL", at::kBool},
    Dtype{"U8", at::kByte},
    Dtype{"I8", at::kChar},
    Dtype{"F8_E5M2", at::kFloat8_e5m2},
    Dtype{"F8_E4M3", at::kFloat8_e4m3fn},
    Dtype{"F8_E8M0", at::kFloat8_e8m0fnu},
    Dtype{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    Dtype{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    Dtype{"I16", at::kShort},
    Dtype{"U16", at::kUInt16},
    Dtype{"F16", at::kHalf},
    Dtype{"BF16", at::kBFloat16},
    Dtype{"I32", at::kInt},
    Dtype{"U32", at::kUInt32},
    Dtype{"F32", at::kFloat},
    Dtype{"C64", at::kComplexFloat},
    Dtype{"F64", at::kDouble},
    Dtype{"I64", at::kLong},
    Dtype{"U64", at::kUInt64},
};

}  // namespace

std::optional<at::ScalarType> dtype_from_name(std::string_view name) {
  const auto* found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == name; });
  return found == kDtypes.end() ? std::nullopt : std::optional(found->type);
}

size_t dtype_rank(at::ScalarType dtype) {
  const auto* found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.type == dtype; });
  return static_cast<size_t>(found - kDtypes.begin());
}

std::string_view dtype_name(at::ScalarType dtype) {
  const size_t rank = dtype_rank(dtype);
  return rank == kDtypes.size() ? std::string_view() : kDtypes[rank].name;
}

}  // namespace tpgm

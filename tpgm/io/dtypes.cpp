// The table of types.
#include "tpgm/io/dtypes.h"

#include <algorithm>
#include <array>

namespace tpgm {
namespace {

struct Dtype {
  std::string_view name, torch_name, storage;  // empty if there is none
  at::ScalarType type;
};

// In the order of the reference implementation, whose writer sorts by its reverse, as ours does.
constexpr std::array kDtypes{
    Dtype{"BOOL", "bool", "BoolStorage", at::kBool},
    Dtype{"U8", "uint8", "ByteStorage", at::kByte},
    Dtype{"I8", "int8", "CharStorage", at::kChar},
    Dtype{"F8_E5M2", "float8_e5m2", "", at::kFloat8_e5m2},
    Dtype{"F8_E4M3", "float8_e4m3fn", "", at::kFloat8_e4m3fn},
    Dtype{"F8_E8M0", "float8_e8m0fnu", "", at::kFloat8_e8m0fnu},
    Dtype{"F8_E4M3FNUZ", "float8_e4m3fnuz", "", at::kFloat8_e4m3fnuz},
    Dtype{"F8_E5M2FNUZ", "float8_e5m2fnuz", "", at::kFloat8_e5m2fnuz},
    Dtype{"I16", "int16", "ShortStorage", at::kShort},
    Dtype{"U16", "uint16", "", at::kUInt16},
    Dtype{"F16", "float16", "HalfStorage", at::kHalf},
    Dtype{"BF16", "bfloat16", "BFloat16Storage", at::kBFloat16},
    Dtype{"I32", "int32", "IntStorage", at::kInt},
    Dtype{"U32", "uint32", "", at::kUInt32},
    Dtype{"F32", "float32", "FloatStorage", at::kFloat},
    Dtype{"C64", "complex64", "ComplexFloatStorage", at::kComplexFloat},
    Dtype{"F64", "float64", "DoubleStorage", at::kDouble},
    Dtype{"I64", "int64", "LongStorage", at::kLong},
    Dtype{"U64", "uint64", "", at::kUInt64},
    Dtype{"", "complex128", "ComplexDoubleStorage", at::kComplexDouble},
};

std::optional<at::ScalarType> find(std::string_view Dtype::*column, std::string_view name) {
  const auto* found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.*column == name; });
  return name.empty() || found == kDtypes.end() ? std::nullopt : std::optional(found->type);
}

}  // namespace

std::optional<at::ScalarType> dtype_from_name(std::string_view name) { return find(&Dtype::name, name); }

std::optional<at::ScalarType> dtype_from_torch_name(std::string_view name) {
  return find(&Dtype::torch_name, name);
}

std::optional<at::ScalarType> dtype_from_storage(std::string_view name) {
  return name == "UntypedStorage" ? at::kByte : find(&Dtype::storage, name);
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

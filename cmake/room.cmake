# LibTorch's headers take many seconds to parse, so targets share precompiled headers. A file pays for all that its
# precompiled header holds (a second or two for torch::nn::Module), hence one for what has modules and one for what
# has tensors alone. CMake shares them only between targets with the same flags; tpgm_flags is where those come from.
add_library(tpgm_flags INTERFACE)
target_compile_options(tpgm_flags INTERFACE -fPIC -Wall -Wextra -Werror=switch)
target_link_libraries(tpgm_flags INTERFACE torch OpenMP::OpenMP_CXX)

set(tpgm_std <algorithm> <filesystem> <functional> <map> <memory> <optional> <set> <string> <string_view> <vector>
    <fmt/format.h> <fmt/ranges.h>)

function(tpgm_precompiled_header name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE tpgm_flags)
  target_precompile_headers(${name} PRIVATE ${tpgm_std} ${ARGN})
endfunction()

tpgm_precompiled_header(tpgm_tensors <ATen/core/Tensor.h>)
tpgm_precompiled_header(tpgm_modules <ATen/ATen.h> <torch/nn/module.h> <torch/optim/optimizer.h>)

# A file also pays for what it includes beyond that and for each template it uses, so that several files are compiled
# as one. Their names in anonymous namespaces must differ then, and no file may have a `using namespace`.
option(TPGM_UNITY "Compile up to eight files at once: half the time for a whole build, more for one changed file" ON)
if(TPGM_UNITY)  # a class in a .cpp file may use its anonymous namespace; GCC takes included files for headers
  target_compile_options(tpgm_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()

function(tpgm_precompile target header)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tpgm_flags>)
  target_precompile_headers(${target} REUSE_FROM ${header})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TPGM_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# tpgm_room(<name> SOURCES <files> [USES <targets>] [PRECOMPILED <header>]): one folder of tpgm/, one library,
# tpgm::<name>. What a room may use is what it links; scripts/check_includes holds the includes to the same directions.
function(tpgm_room name)
  cmake_parse_arguments(room "" "PRECOMPILED" "SOURCES;USES" ${ARGN})
  add_library(tpgm_${name} STATIC ${room_SOURCES})
  add_library(tpgm::${name} ALIAS tpgm_${name})
  set_target_properties(tpgm_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(tpgm_${name} PUBLIC cxx_std_20)
  target_compile_options(tpgm_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC -Wall -Wextra -Werror=switch>)
  target_include_directories(tpgm_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(tpgm_${name} PUBLIC ${room_USES})
  if(room_PRECOMPILED)
    tpgm_precompile(tpgm_${name} ${room_PRECOMPILED})
  endif()
  set_property(GLOBAL APPEND PROPERTY tpgm_rooms tpgm_${name})
endfunction()

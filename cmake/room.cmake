# LibTorch's headers take many seconds to parse, so everything that includes them shares one precompiled header.
# CMake shares it only between targets with the same flags; tpgm_flags is where those come from.
add_library(tpgm_flags INTERFACE)
target_compile_options(tpgm_flags INTERFACE -fPIC -Wall -Wextra)
target_link_libraries(tpgm_flags INTERFACE torch OpenMP::OpenMP_CXX fmt::fmt-header-only)

file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cpp "")
add_library(tpgm_precompiled OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
target_link_libraries(tpgm_precompiled PRIVATE tpgm_flags)
target_precompile_headers(tpgm_precompiled PRIVATE <ATen/ATen.h> <torch/nn/module.h> <torch/optim/optimizer.h>
                          <fmt/format.h> <fmt/ranges.h>)

function(tpgm_precompile target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tpgm_flags>)
  target_precompile_headers(${target} REUSE_FROM tpgm_precompiled)
endfunction()

# tpgm_room(<name> SOURCES <files> [USES <targets>]): one folder of tpgm/, one library, tpgm::<name>.
# What a room may use is what it links; scripts/check_includes holds the includes to the same directions.
function(tpgm_room name)
  cmake_parse_arguments(room "" "" "SOURCES;USES" ${ARGN})
  add_library(tpgm_${name} STATIC ${room_SOURCES})
  add_library(tpgm::${name} ALIAS tpgm_${name})
  set_target_properties(tpgm_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(tpgm_${name} PUBLIC cxx_std_20)
  target_include_directories(tpgm_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(tpgm_${name} PUBLIC ${room_USES})
  if(NOT name STREQUAL kernels)  # which knows no LibTorch
    tpgm_precompile(tpgm_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY tpgm_rooms tpgm_${name})
endfunction()

# The CPU's half of a CUDA build of LibTorch, the one in TORCH_INSTALL_PREFIX. Its own package asks for the whole CUDA
# toolkit, and libtorch.so would load all of CUDA.
include(${TORCH_INSTALL_PREFIX}/share/cmake/Torch/TorchConfigVersion.cmake)
set(Torch_VERSION ${PACKAGE_VERSION})
unset(PACKAGE_VERSION)
set(Torch_FOUND TRUE)
set(TORCH_INCLUDE_DIRS ${TORCH_INSTALL_PREFIX}/include ${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include)
foreach(library IN ITEMS c10 torch_cpu)
  add_library(${library} SHARED IMPORTED)
  set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${TORCH_INSTALL_PREFIX}/lib/lib${library}.so
                                              INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}")
endforeach()
target_link_libraries(torch_cpu INTERFACE c10)
add_library(torch INTERFACE IMPORTED)
target_link_libraries(torch INTERFACE torch_cpu)

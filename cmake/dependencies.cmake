# The dependencies: LibTorch (from .venv unless CMAKE_PREFIX_PATH names another), OpenMP, JSON, CLI11,
# zlib, libjpeg-turbo, libpng, xxhash, utf8proc, FreeType.

find_program(TPGM_CCACHE ccache)
if(TPGM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TPGM_CCACHE})
endif()

file(GLOB tpgm_venv_torch ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)  # it warns of a static library (kineto) that is not needed
if("${Torch_DIR}" STREQUAL "${tpgm_venv_torch}/share/cmake/Torch")
  unset(Torch_DIR CACHE)  # not named by the user, but found below the last time
endif()
if(CMAKE_VERSION VERSION_LESS 3.26)
  set(CMAKE_CUDA_STANDARD 17)  # LibTorch's package would require 20 and fail before the message below
endif()
set(tpgm_cuda_flags "${CMAKE_CUDA_FLAGS}")
find_package(Torch QUIET)
# A wheel may be a CUDA build on a machine without CUDA. A LibTorch that the user named is taken as it is.
set(tpgm_torch_for_cpu FALSE)
if(NOT Torch_FOUND AND EXISTS ${tpgm_venv_torch}/lib/libtorch_cuda.so AND NOT TPGM_CUDA STREQUAL ON)
  find_package(CUDAToolkit QUIET)
  if(NOT TPGM_CUDA OR NOT (TARGET CUDA::cudart AND TARGET CUDA::cublasLt AND TARGET CUDA::nvrtc))
    set(tpgm_torch_for_cpu TRUE)
    set(TORCH_INSTALL_PREFIX ${tpgm_venv_torch})
    include(cmake/torch_for_cpu.cmake)
  endif()
endif()
if(NOT Torch_FOUND)
  find_package(Torch QUIET PATHS ${tpgm_venv_torch}/share/cmake NO_DEFAULT_PATH)
endif()
set(TPGM_TORCH_FOR_CPU ${tpgm_torch_for_cpu} CACHE INTERNAL "the CPU's half of a CUDA build")
unset(CMAKE_MESSAGE_LOG_LEVEL)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found. Run scripts/bootstrap, or name yours: "
                      "cmake -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
message(STATUS "LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}")

# LibTorch's headers run at::parallel_for on OpenMP only where the including file is compiled with it.
# The fuzz targets run no such loop, and clang would want an OpenMP runtime of its own.
if(TPGM_FUZZ)
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)  # TorchScript archives
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(Freetype QUIET)  # without it, 'tpgm data glyphs' says what to install
find_path(XXHASH_INCLUDE_DIR xxhash.h)  # without it, 'tpgm wise' and 'tpgm convert' say what to install
find_library(XXHASH_LIBRARY xxhash)
mark_as_advanced(XXHASH_INCLUDE_DIR XXHASH_LIBRARY)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)  # without it, CLIP's tokenizer says what to install
find_library(UTF8PROC_LIBRARY utf8proc)
mark_as_advanced(UTF8PROC_INCLUDE_DIR UTF8PROC_LIBRARY)

if(TPGM_CUDA STREQUAL AUTO)
  if(TARGET torch_cuda)
    set(TPGM_CUDA ON)
  else()
    set(TPGM_CUDA OFF)
  endif()
elseif(TPGM_CUDA AND NOT TARGET torch_cuda)
  message(FATAL_ERROR "TPGM_CUDA=ON, but this LibTorch (${TORCH_INSTALL_PREFIX}) was built without CUDA")
endif()
if(TPGM_CUDA)
  if(CMAKE_VERSION VERSION_LESS 3.26)
    message(FATAL_ERROR "CMake ${CMAKE_VERSION} does not know that nvcc compiles C++20; with CUDA this needs CMake 3.26 "
                        "or later (python3 -m pip install cmake). Without CUDA: -DTPGM_CUDA=OFF")
  endif()
  # LibTorch's package turns CMAKE_CUDA_ARCHITECTURES off, so the kernels have a setting of their own. Where it sees no
  # GPU, it adds flags for all architectures, some of which nvcc may no longer know.
  set(CMAKE_CUDA_FLAGS "${tpgm_cuda_flags}")
  set(TPGM_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPUs to compile the kernels for; newer ones compile at first use")
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

# LibTorch brings the OpenMP runtime it was built with, and its folder has to come first. CMake would warn of that for
# every program; naming the folder ourselves is enough, and programs find LibTorch there after an install as well.
set(CMAKE_SKIP_RPATH ON)
add_link_options(LINKER:-rpath,${TORCH_INSTALL_PREFIX}/lib)
if(TPGM_CUDA)
  add_link_options(LINKER:-rpath,${CUDAToolkit_LIBRARY_DIR})
endif()

if(TPGM_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined -g)
  add_link_options(-fsanitize=address,undefined)
endif()
if(TPGM_SANITIZE_THREADS)
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g)
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fno-ipa-cp>)  # a pass in which GCC 12 crashes with ThreadSanitizer
  add_link_options(-fsanitize=thread)
endif()
if(TPGM_FUZZ)
  # vptr: LibTorch keeps the type information of some classes to itself.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=vptr
                      -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1 -g
                      -fprofile-instr-generate -fcoverage-mapping)  # the lines that inputs reach, for tests/fuzz/run
  add_link_options(-fsanitize=address,undefined -fprofile-instr-generate)
endif()

# Chooses the newest clang++ that can link a fuzz target: distributions ship libFuzzer and the sanitizers
# apart from the compiler. TPGM_CLANGXX in the environment overrides; it also carries the choice to CMake's
# own small projects, which read this file again.
if(NOT DEFINED ENV{TPGM_CLANGXX})
  set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/libfuzzer)
  file(WRITE ${probe}.cpp
       "extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n")
  foreach(suffix IN ITEMS -24 -23 -22 -21 -20 -19 -18 -17 -16 -15 -14 "")
    find_program(candidate clang++${suffix} NO_CACHE)
    if(candidate)
      execute_process(COMMAND ${candidate} -fsanitize=fuzzer,address,undefined ${probe}.cpp -o ${probe}
                      RESULT_VARIABLE failure OUTPUT_QUIET ERROR_QUIET)
      if(failure EQUAL 0)
        set(ENV{TPGM_CLANGXX} ${candidate})
        break()
      endif()
    endif()
    unset(candidate)
  endforeach()
  if(NOT DEFINED ENV{TPGM_CLANGXX})
    message(FATAL_ERROR "No clang++ with libFuzzer and AddressSanitizer was found. Debian, Ubuntu: "
                        "apt-get install clang-16 libclang-rt-16-dev (or any later version; or clang). "
                        "Elsewhere, name yours: TPGM_CLANGXX=/path/to/clang++ cmake --preset fuzz")
  endif()
endif()
set(CMAKE_CXX_COMPILER $ENV{TPGM_CLANGXX})

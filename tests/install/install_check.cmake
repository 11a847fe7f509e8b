# Installs BUILD into WORK/prefix, builds PROJECT against it and runs it, then runs the installed command.
set(prefix ${WORK}/prefix)
set(without_path ${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "install_check: this failed (${result}): ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "install_check: expected '${pattern}' in:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${prefix})

# Only the prefix is named; LibTorch must be found through it. PREFIX_PATH is what the build itself was given.
string(REPLACE ";" ":" path "${PREFIX_PATH}:$ENV{CMAKE_PREFIX_PATH}")
set(ENV{CMAKE_PREFIX_PATH} "${path}")
run(${CMAKE_COMMAND} -S ${PROJECT} -B ${WORK}/build -G ${GENERATOR} -Dtpgm_ROOT=${prefix} -DCMAKE_BUILD_TYPE=${CONFIG}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${without_path} ${WORK}/build/my_fine_tuning)
message("${output}")
expect("weight [0-9.e-]+\nbias [0-9.e-]+\n")

run(${without_path} ${prefix}/bin/tpgm --version)
expect("${VERSION}")
file(REMOVE_RECURSE ${WORK})

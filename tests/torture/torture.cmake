# Trials of a fixed seed. Their limits are for machines that are much slower than any. `make torture` runs more.
function(tpgm_torture name)
  add_test(NAME torture-${name} COMMAND python3 ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${name}.py $<TARGET_FILE:tpgm_command>
                                        ${ARGN} --seed 1 --limit 120)
  set_tests_properties(torture-${name} PROPERTIES PROCESSORS 2)
endfunction()

tpgm_torture(files --trials 100)
tpgm_torture(starve --trials 11)
if(NOT TPGM_SANITIZE)  # whose libraries must be the first ones
  add_library(torture-faults MODULE torture/faults.cpp)
  target_link_libraries(torture-faults PRIVATE ${CMAKE_DL_LIBS})
  tpgm_torture(kills $<TARGET_FILE:torture-faults> --trials 40)
  tpgm_torture(faults $<TARGET_FILE:torture-faults> --trials 120)
endif()

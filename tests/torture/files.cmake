# Trials of a fixed seed. Their limits are for machines that are much slower than any.
add_test(NAME torture-files COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/files.py $<TARGET_FILE:tpgm_command>
                                    --trials 100 --seed 1 --limit 120)
add_test(NAME torture-starve COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/starve.py $<TARGET_FILE:tpgm_command>
                                     --trials 11 --seed 1 --limit 120)
set_tests_properties(torture-files torture-starve PROPERTIES PROCESSORS 2)

# `cmake --install`: headers, the room libraries, the command, and a package for find_package(tpgm).
include(CMakePackageConfigHelpers)

get_property(tpgm_rooms GLOBAL PROPERTY tpgm_rooms)
set(tpgm_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tpgm)

install(TARGETS ${tpgm_rooms} tpgm EXPORT tpgmTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tpgm/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tpgm
        FILES_MATCHING PATTERN "*.h" PATTERN "testing.h" EXCLUDE)  # which only tests use
install(EXPORT tpgmTargets NAMESPACE tpgm:: DESTINATION ${tpgm_package_dir})

install(TARGETS tpgm_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS tpgm_torch RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tpgm)

# Where the command looks for tables; recipes name assets relative to themselves.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes ${PROJECT_SOURCE_DIR}/assets DESTINATION ${CMAKE_INSTALL_DATADIR}/tpgm)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/benchmarks/rivals DESTINATION ${CMAKE_INSTALL_DATADIR}/tpgm/benchmarks
        FILES_MATCHING PATTERN "*.py")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tpgmConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/tpgmConfig.cmake
                              INSTALL_DESTINATION ${tpgm_package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tpgmConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tpgmConfig.cmake ${PROJECT_BINARY_DIR}/tpgmConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/torch_for_cpu.cmake
        DESTINATION ${tpgm_package_dir})

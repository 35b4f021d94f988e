include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(destination ${CMAKE_INSTALL_DATADIR}/cmake/collectx)
install(DIRECTORY include/collectx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
target_include_directories(collectx INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS collectx EXPORT collectx-targets)
install(EXPORT collectx-targets NAMESPACE collectx:: DESTINATION ${destination})

write_basic_package_version_file(${PROJECT_BINARY_DIR}/collectx-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES cmake/collectx-config.cmake cmake/collectx-libfabric.cmake ${PROJECT_BINARY_DIR}/collectx-config-version.cmake DESTINATION ${destination})
install(FILES cmake/collectx-pmix.cmake cmake/collectx-mpi.cmake cmake/collectx-cuda.cmake DESTINATION ${destination})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

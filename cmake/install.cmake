# Installs the headers, both libraries, the program, and what pkg-config and find_package(sennit) need.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/sennit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
set_target_properties(sennit_static PROPERTIES EXPORT_NAME static)
set_target_properties(sennit_shared PROPERTIES EXPORT_NAME shared)
install(TARGETS sennit_static sennit_shared EXPORT sennitTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET sennit)
  install(TARGETS sennit RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(SENNIT_CONFORMANCE)
  install(PROGRAMS $<TARGET_FILE:conformance> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME sennit-conformance)
endif()

# pkg-config: the prefix is found from the file's own place, so the tree can be moved.
set(SENNIT_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH SENNIT_PC_PREFIX /x/${SENNIT_PC_DIR} /x)
configure_file(cmake/sennit.pc.in ${PROJECT_BINARY_DIR}/sennit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sennit.pc DESTINATION ${SENNIT_PC_DIR})

# CMake: find_package(sennit) gives sennit::sennit (shared), sennit::shared and sennit::static.
set(SENNIT_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/sennit)
install(EXPORT sennitTargets NAMESPACE sennit:: DESTINATION ${SENNIT_CONFIG_DIR})
configure_package_config_file(cmake/sennitConfig.cmake.in ${PROJECT_BINARY_DIR}/sennitConfig.cmake
                              INSTALL_DESTINATION ${SENNIT_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sennitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sennitConfig.cmake ${PROJECT_BINARY_DIR}/sennitConfigVersion.cmake
        DESTINATION ${SENNIT_CONFIG_DIR})

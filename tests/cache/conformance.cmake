# The conformance program: part of the tests, and installed as sennit-conformance for families from outside the library
# (docs/own-family.md). It links the library's insides; what it loads needs none.
option(SENNIT_CONFORMANCE "Build and install sennit-conformance, which tries cache families" ON)
set(SENNIT_SUITE ${CMAKE_CURRENT_LIST_DIR})
file(GLOB suite_twins CONFIGURE_DEPENDS ${SENNIT_SUITE}/twin_*.c)
# What all tests of caches compile.
set(SENNIT_CACHE_HARNESS ${SENNIT_SUITE}/harness.c ${SENNIT_SUITE}/families.c ${SENNIT_SUITE}/kv_common.c
    ${SENNIT_SUITE}/../support/raw_family.c ${suite_twins})
if(SENNIT_CONFORMANCE OR SENNIT_TESTS)
  add_executable(conformance ${SENNIT_SUITE}/conformance.c ${SENNIT_SUITE}/world.c ${SENNIT_SUITE}/outside.c
                 ${SENNIT_SUITE}/layout.c ${SENNIT_CACHE_HARNESS})
  target_link_libraries(conformance PRIVATE sennit_flags sennit_static PkgConfig::XXHASH ${CMAKE_DL_LIBS})
  target_include_directories(conformance PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  set_target_properties(conformance PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/cache)
endif()

# The library as others get it: installed, moved, as a subdirectory, fetched. Each test is one case of package/run.cmake.
set(package ${CMAKE_COMMAND} -DCOMPILER=${CMAKE_CXX_COMPILER} -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
  -DVERSION=${PROJECT_VERSION} "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/package")
set(package_script ${CMAKE_CURRENT_SOURCE_DIR}/package/run.cmake)

add_test(NAME package.install COMMAND ${package} -DCASE=install -P ${package_script})
set_tests_properties(package.install PROPERTIES LABELS package TIMEOUT 120 RESOURCE_LOCK build FIXTURES_SETUP installed)
foreach(case
    BLD-06.find_package BLD-06.moved_prefix BLD-06.add_subdirectory BLD-06.fetch_content BLD-06.versions BLD-06.no_paths_of_the_build
    BLD-07.nothing_is_forced_on_users)
  add_test(NAME package.${case} COMMAND ${package} -DCASE=${case} -P ${package_script})
  set_tests_properties(package.${case} PROPERTIES LABELS package TIMEOUT 300 FIXTURES_REQUIRED installed)
endforeach()

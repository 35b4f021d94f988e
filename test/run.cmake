# test/run/*_test.cpp: a doctest program each. Its first five lines may say
#   labels: sanitize    with both sanitizers; address: with that one, where there is but one thread; threads: with the other
#   compile: -O0 or -O1 where it would take longer to compile than to run
#   timeout: seconds
#   cores: 1            where it does little but wait, so that another may run beside it
add_library(doctest_main OBJECT doctest_main.cpp)
target_link_libraries(doctest_main PRIVATE doctest::doctest)
target_compile_features(doctest_main PRIVATE cxx_std_20)

# The program of one source, with the libraries named after it.
function(collectx_run_test source)
  cmake_path(GET source STEM stem)
  string(REGEX REPLACE "_test$" "" name ${stem})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} head LIMIT_COUNT 5)
  set(labels run)
  set(timeout 120)
  if("${head}" MATCHES "// labels: ([a-z ]+)")
    string(REPLACE " " ";" more "${CMAKE_MATCH_1}")
    list(APPEND labels ${more})
  endif()
  if("${head}" MATCHES "// timeout: ([0-9]+)")
    set(timeout ${CMAKE_MATCH_1})
  endif()

  math(EXPR timeout "${timeout} * 4") # for a machine that others use too; what hangs has deadlines of its own
  add_executable(run_${name} ${source} $<TARGET_OBJECTS:doctest_main>)
  target_link_libraries(run_${name} PRIVATE collectx::collectx ${ARGN} collectx_warnings doctest::doctest)
  target_include_directories(run_${name} PRIVATE . run)
  add_test(NAME run.${name} COMMAND run_${name})
  # Ranks that spin want the cores for themselves.
  set(cores 2)
  if("${head}" MATCHES "// cores: ([0-9]+)")
    set(cores ${CMAKE_MATCH_1})
  endif()
  set_tests_properties(run.${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} PROCESSORS ${cores})
  if("${head}" MATCHES "// compile: (-O[01])")
    target_compile_options(run_${name} PRIVATE $<$<CONFIG:Release>:${CMAKE_MATCH_1}>)
  endif()
  foreach(group sanitize address threads)
    if(${group} IN_LIST labels)
      add_dependencies(collectx_${group} run_${name})
    endif()
  endforeach()
endfunction()

file(GLOB sources CONFIGURE_DEPENDS run/*_test.cpp)
foreach(source IN LISTS sources)
  collectx_run_test(${source})
endforeach()
if(TARGET collectx::libfabric)
  file(GLOB sources CONFIGURE_DEPENDS network/*_test.cpp)
  foreach(source IN LISTS sources)
    collectx_run_test(${source} collectx::libfabric)
  endforeach()
  # All of it takes half an hour: by `ctest -L faults_full` only.
  foreach(name faults messages)
    add_test(NAME run.${name}_full COMMAND run_${name})
    set_tests_properties(run.${name}_full PROPERTIES LABELS faults_full TIMEOUT 36000 PROCESSORS 2 ENVIRONMENT COLLECTX_FAULTS=full)
  endforeach()
endif()

# test/model: the same kind of program, under a model checker.
find_path(COLLECTX_RELACY_INCLUDE_DIR relacy/relacy.hpp)
mark_as_advanced(COLLECTX_RELACY_INCLUDE_DIR)
if(COLLECTX_RELACY_INCLUDE_DIR)
  file(GLOB sources CONFIGURE_DEPENDS model/*_test.cpp)
  foreach(source IN LISTS sources)
    collectx_run_test(${source})
    cmake_path(GET source STEM stem)
    string(REGEX REPLACE "_test$" "" name ${stem})
    # Relacy replaces the operators new and delete, but not the sized delete.
    target_compile_options(run_${name} PRIVATE -fno-sized-deallocation)
  endforeach()
  list(APPEND COLLECTX_REPORT "model checker: on, Relacy")
else()
  list(APPEND COLLECTX_REPORT "model checker: off (needs relacy-dev)")
endif()

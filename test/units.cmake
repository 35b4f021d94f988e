# BLD-01: the same templates in two units, linked as users link: unoptimised, at link time with the one-definition rule checked, without
# exceptions, and as two shared libraries in one process.
function(collectx_units_test name)
  set_tests_properties(${name} PROPERTIES LABELS run TIMEOUT 120 PROCESSORS 2)
endfunction()

function(collectx_units kind)
  add_executable(units_${kind} units/main.cpp units/left.cpp units/right.cpp)
  target_link_libraries(units_${kind} PRIVATE collectx::collectx collectx_warnings)
  target_compile_options(units_${kind} PRIVATE ${ARGN})
  target_link_options(units_${kind} PRIVATE -Wl,--warn-common -Wl,--fatal-warnings ${ARGN})
  add_test(NAME units.BLD-01.${kind} COMMAND units_${kind})
  collectx_units_test(units.BLD-01.${kind})
endfunction()

collectx_units(unoptimised -O0)
collectx_units(bare -fno-exceptions -fno-rtti)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  collectx_units(link_time -flto -Wodr)
endif()

foreach(side left right)
  add_library(units_shared_${side} SHARED units/${side}.cpp)
  target_link_libraries(units_shared_${side} PRIVATE collectx::collectx collectx_warnings)
endforeach()
add_executable(units_shared units/main.cpp)
target_link_libraries(units_shared PRIVATE collectx::collectx collectx_warnings units_shared_left units_shared_right)
add_test(NAME units.BLD-01.shared_libraries COMMAND units_shared)
collectx_units_test(units.BLD-01.shared_libraries)

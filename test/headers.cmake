# Every header by itself and all of them together, in every mode that is promised. The lists are made, not kept: a new header is in all.
# What needs a library beyond the standard one and Linux is compiled by the tests of that part.
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/include CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.hpp)
set(without "/(lib)?fabric|transport/(composite|device_relay)|rendezvous/(pmix|mpi)")
list(FILTER headers EXCLUDE REGEX "${without}")
set(folder ${CMAKE_CURRENT_BINARY_DIR}/headers)

# Twice in a row, so that a missing guard shows.
set(alone "")
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} name)
  set(source ${folder}/alone/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
  list(APPEND alone ${source})
endforeach()

set(system_headers "")
foreach(header IN LISTS headers)
  file(STRINGS ${PROJECT_SOURCE_DIR}/include/${header} includes REGEX "^ *# *include *<")
  list(APPEND system_headers ${includes})
endforeach()
list(REMOVE_DUPLICATES system_headers)
list(SORT system_headers)
list(FILTER system_headers EXCLUDE REGEX "intrin.h|arm_")
list(JOIN system_headers "\n" system_headers)

# All headers: in one order, in the other, and among the macros that other people's headers define.
set(forward ${headers})
set(backward ${headers})
list(REVERSE backward)
foreach(order forward backward)
  list(TRANSFORM ${order} REPLACE "(.+)" "#include \"\\1\"")
  list(JOIN ${order} "\n" ${order})
endforeach()
set(main "int main() { return 0; }")
file(CONFIGURE OUTPUT ${folder}/forward.cpp CONTENT "${forward}\n${main}\n" @ONLY)
file(CONFIGURE OUTPUT ${folder}/backward.cpp CONTENT "${backward}\n" @ONLY)
# libstdc++ undefines min and max in its first header. So the macros come before everything, as users have it, and again after it.
set(hostile "#include \"hostile_macros.inc\"")
file(CONFIGURE OUTPUT ${folder}/hostile_first.cpp CONTENT "${hostile}\n${forward}\n" @ONLY)
file(CONFIGURE OUTPUT ${folder}/hostile_after.cpp CONTENT "${system_headers}\n${hostile}\n${forward}\n" @ONLY)

set(alone_in 23)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(alone_in 20)
endif()
foreach(standard 20 23)
  foreach(kind alone twice hostile bare)
    set(target headers_${kind}_cxx${standard})
    # One by one they take a minute, so g++ compiles them so in one standard and others in the other.
    if(kind STREQUAL "alone" AND NOT standard EQUAL alone_in)
      continue()
    endif()
    if(kind STREQUAL "alone")
      add_library(${target} OBJECT ${alone})
    elseif(kind STREQUAL "twice")
      add_executable(${target} ${folder}/forward.cpp ${folder}/backward.cpp)
    elseif(kind STREQUAL "hostile")
      add_library(${target} OBJECT ${folder}/hostile_first.cpp ${folder}/hostile_after.cpp)
      target_include_directories(${target} PRIVATE headers)
    else()
      add_library(${target} OBJECT ${folder}/backward.cpp)
      target_compile_options(${target} PRIVATE -fno-exceptions -fno-rtti)
    endif()
    target_link_libraries(${target} PRIVATE collectx::collectx collectx_warnings)
    set_target_properties(${target} PROPERTIES CXX_STANDARD ${standard} CXX_STANDARD_REQUIRED ON)
    collectx_compile_test(headers.${kind}_cxx${standard} ${target})
  endforeach()
endforeach()

add_test(NAME headers.all_are_compiled COMMAND ${CMAKE_COMMAND}
  "-DOBJECTS=$<JOIN:$<TARGET_OBJECTS:headers_alone_cxx${alone_in}>,|>" -DINCLUDE=${PROJECT_SOURCE_DIR}/include
  "-DWITHOUT=${without}" -P ${CMAKE_CURRENT_SOURCE_DIR}/headers/count.cmake)
set_tests_properties(headers.all_are_compiled PROPERTIES LABELS static TIMEOUT 60 DEPENDS headers.alone_cxx${alone_in})

# A compiler or a mode that is not supported gets one sentence.
add_test(NAME headers.BLD-09.refuses_cxx17 COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -fsyntax-only -x c++
  -I${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include/collectx/config.hpp)
set_tests_properties(headers.BLD-09.refuses_cxx17 PROPERTIES LABELS fail TIMEOUT 60
  PASS_REGULAR_EXPRESSION "error:[^\n]*collectx: C\\+\\+20 or newer is required")

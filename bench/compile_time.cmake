# -DCOMPILER= -DINCLUDE= -DWORK= [-DLIMIT=milliseconds]: what including a header costs: user and system seconds of `COMPILER -O0 -c`, the median of
# five. Processor time, not time on the wall, so that a busy machine does not look like a heavy header.
cmake_minimum_required(VERSION 3.25)

function(measure header result)
  file(WRITE ${WORK}/unit.cpp "#include \"${header}\"\nint main() { return 0; }\n")
  set(times "")
  foreach(repetition RANGE 1 5)
    execute_process(
      COMMAND bash -c "TIMEFORMAT='%U %S'; time \"$@\"" - ${COMPILER} -std=c++20 -O0 -I${INCLUDE} -c ${WORK}/unit.cpp -o ${WORK}/unit.o
      RESULT_VARIABLE code ERROR_VARIABLE said)
    if(NOT code EQUAL 0 OR NOT said MATCHES "([0-9]+)[.,]([0-9][0-9][0-9]) ([0-9]+)[.,]([0-9][0-9][0-9])\n$")
      message(FATAL_ERROR "${header} does not compile:\n${said}")
    endif()
    # Digits put together are milliseconds; the leading 1 keeps CMake from reading 0089 as octal.
    math(EXPR milliseconds "1${CMAKE_MATCH_2} - 1000 + 1${CMAKE_MATCH_4} - 1000 + 1000 * ${CMAKE_MATCH_1} + 1000 * ${CMAKE_MATCH_3}")
    list(APPEND times ${milliseconds})
  endforeach()
  list(SORT times COMPARE NATURAL)
  list(GET times 2 median)
  set(${result} ${median} PARENT_SCOPE)
endfunction()

function(report header budget)
  measure(${header} milliseconds)
  set(verdict "")
  if(milliseconds GREATER budget)
    set(verdict ", over it")
  endif()
  message("${milliseconds} ms  ${header}  (budget ${budget} ms${verdict})")
  set(milliseconds ${milliseconds} PARENT_SCOPE)
endfunction()

report(collectx/collectx.hpp 1000)
if(LIMIT AND milliseconds GREATER LIMIT)
  message(FATAL_ERROR "collectx/collectx.hpp costs every translation unit more than ${LIMIT} ms")
endif()
if(NOT LIMIT)
  file(GLOB algorithms RELATIVE ${INCLUDE} ${INCLUDE}/collectx/algo/*.hpp)
  foreach(header IN LISTS algorithms)
    report(${header} 300)
  endforeach()
endif()

# test/static/*.cpp: compiling is the test.
file(GLOB sources CONFIGURE_DEPENDS static/*.cpp)
foreach(source IN LISTS sources)
  cmake_path(GET source STEM stem)
  add_library(static_${stem} OBJECT ${source})
  target_link_libraries(static_${stem} PRIVATE collectx::collectx collectx_warnings)
  target_compile_options(static_${stem} PRIVATE -O0) # all is evaluated by the front end
  collectx_compile_test(static.${stem} static_${stem})
endforeach()

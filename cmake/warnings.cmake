# Private to the project: neither installed nor linked by collectx::collectx.
add_library(collectx_warnings INTERFACE)
target_compile_options(collectx_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wold-style-cast -Wdouble-promotion -Werror)

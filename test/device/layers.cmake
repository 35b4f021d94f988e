# What can be known of kernels without running them.

# L0: all architectures, all warnings are errors, and so is a spill. Kernels are bounded to two blocks of 512 threads on a processor, hence to
# 64 registers a thread, so a kernel that needs more is a spill.
set(kernel_flags -std=c++20 --expt-relaxed-constexpr -Werror=all-warnings --diag-suppress=2810 -O2 -Xptxas --warn-on-spills,-Werror
  -I${PROJECT_SOURCE_DIR}/include)
function(collectx_kernel_test source)
  cmake_path(GET source STEM stem)
  set(code "")
  foreach(architecture IN LISTS ARGN)
    list(APPEND code -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  add_test(NAME device.L0.${stem} COMMAND ${CMAKE_CUDA_COMPILER} ${kernel_flags} ${code} -c -o ${CMAKE_CURRENT_BINARY_DIR}/${stem}.o
    ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  set_tests_properties(device.L0.${stem} PROPERTIES LABELS device TIMEOUT 600)
endfunction()
collectx_kernel_test(kernels/folds.cu 75 80 90 100 120)
collectx_kernel_test(kernels/small_folds.cu 90 120)
collectx_kernel_test(kernels/local_reduce.cu 90)
collectx_kernel_test(../../examples/09_fused_norm.cu 90)

# L1: functors, conversions and folds run on the host in test/run; here they are compared with the vendor's conversions.
add_executable(device_vendor_conversions vendor_conversions_test.cpp)
target_link_libraries(device_vendor_conversions PRIVATE collectx::collectx collectx_warnings)
target_include_directories(device_vendor_conversions SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
add_dependencies(collectx_device device_vendor_conversions)
add_test(NAME device.L1.vendor_conversions COMMAND device_vendor_conversions)
set_tests_properties(device.L1.vendor_conversions PROPERTIES LABELS device TIMEOUT 240)

# L4: what the PTX says, and that planted faults in it are reported.
find_program(COLLECTX_PYTHON3 python3 REQUIRED)
set(expect_folds ld.acquire.sys st.release.sys ld.cg.v4.u32 st.cg.v4.u32)
set(expect_plans ${expect_folds} ld.relaxed.sys.v2.u64 st.relaxed.sys.v2.u64)
foreach(kernels folds plans)
  set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${kernels}.ptx)
  list(TRANSFORM expect_${kernels} PREPEND "--expect;")
  add_test(NAME device.L4.${kernels}_ptx
    COMMAND ${CMAKE_CUDA_COMPILER} ${kernel_flags} -arch=sm_90 -ptx -o ${ptx} ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${kernels}.cu)
  add_test(NAME device.L4.${kernels}_lint
    COMMAND ${COLLECTX_PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/ptx_lint.py ${ptx} ${expect_${kernels}})
  set_tests_properties(device.L4.${kernels}_ptx PROPERTIES LABELS device TIMEOUT 240 FIXTURES_SETUP ${kernels}_ptx)
  set_tests_properties(device.L4.${kernels}_lint PROPERTIES LABELS device TIMEOUT 60 FIXTURES_REQUIRED ${kernels}_ptx)
endforeach()
add_test(NAME device.L4.lint_reports_planted_faults COMMAND ${COLLECTX_PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/ptx_lint_test.py)
set_tests_properties(device.L4.lint_reports_planted_faults PROPERTIES LABELS device TIMEOUT 60 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)

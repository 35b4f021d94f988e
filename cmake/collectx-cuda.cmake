# collectx::cuda, where the CUDA toolkit 12 or newer is found. Read by the project itself and by find_package(collectx COMPONENTS cuda).
# Whoever links it compiles .cu files as C++20; no library of CUDA has to be linked beyond the runtime that nvcc links by itself.
if(NOT TARGET collectx::cuda)
  find_package(CUDAToolkit 12 QUIET)
  if(CUDAToolkit_FOUND)
    set(COLLECTX_CUDA_VERSION ${CUDAToolkit_VERSION})
    add_library(collectx::cuda INTERFACE IMPORTED GLOBAL)
    set_target_properties(collectx::cuda PROPERTIES
      INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>"
      INTERFACE_LINK_LIBRARIES collectx::collectx)
  else()
    set(collectx_cuda_FOUND FALSE)
  endif()
endif()

# collectx::mpi, where an MPI is found. Read by the project itself and by find_package(collectx COMPONENTS mpi).
if(NOT TARGET collectx::mpi)
  set(MPI_CXX_SKIP_MPICXX TRUE) # the C++ bindings of old are not used
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    add_library(collectx::mpi INTERFACE IMPORTED GLOBAL)
    set_target_properties(collectx::mpi PROPERTIES INTERFACE_LINK_LIBRARIES "collectx::collectx;MPI::MPI_CXX")
    set(COLLECTX_MPI_VERSION "MPI ${MPI_CXX_VERSION}")
  else()
    set(collectx_mpi_FOUND FALSE)
  endif()
endif()

# collectx::pmix, where PMIx is found. Read by the project itself and by find_package(collectx COMPONENTS pmix).
if(NOT TARGET collectx::pmix)
  find_path(COLLECTX_PMIX_INCLUDE_DIR pmix.h PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} PATH_SUFFIXES pmix2/include pmix/include)
  find_library(COLLECTX_PMIX_LIBRARY pmix PATH_SUFFIXES pmix2/lib pmix/lib)
  mark_as_advanced(COLLECTX_PMIX_INCLUDE_DIR COLLECTX_PMIX_LIBRARY)
  if(COLLECTX_PMIX_INCLUDE_DIR AND COLLECTX_PMIX_LIBRARY)
    file(STRINGS ${COLLECTX_PMIX_INCLUDE_DIR}/pmix_version.h lines REGEX "^#define PMIX_VERSION_(MAJOR|MINOR|RELEASE) ")
    list(TRANSFORM lines REPLACE "^#define [A-Z_]+ +([0-9]+).*" "\\1")
    list(JOIN lines "." COLLECTX_PMIX_VERSION)
    add_library(collectx::pmix INTERFACE IMPORTED GLOBAL)
    set_target_properties(collectx::pmix PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES ${COLLECTX_PMIX_INCLUDE_DIR}
      INTERFACE_LINK_LIBRARIES "collectx::collectx;${COLLECTX_PMIX_LIBRARY}")
  else()
    set(collectx_pmix_FOUND FALSE)
  endif()
endif()

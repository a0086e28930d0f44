# Public headers, libraries and the CMake package `Starling` with the targets starling::core, ::kernels,
# ::collectives, ::elastic, ::actors and ::program. An installed header is included by the same path as in the
# sources: #include "core/base/bytes.h". tests/install shows a user of the package. Components: `command` is
# bin/starling and the GPU plugin, if that was built; `development` all else.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

set(starling_rooms core kernels collectives elastic actors)
set(starling_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Starling")

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/libstarling-dev")

foreach(room IN LISTS starling_rooms)
  install(TARGETS starling_${room} EXPORT StarlingTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endforeach()
# The whole command line for programs of one's own: #include <starling.h>, starling::program.
install(TARGETS starling_program EXPORT StarlingTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")

# The public headers, and what they include: no other header is installed.
set(starling_headers tools/public/starling.h actors/system.h actors/coordinator/coordinator.h actors/worker/loader.h
  actors/worker/worker.h core/base/mac.h core/base/philox.h core/base/standard_streams.h kernels/cpu/portable_math.h)
set(starling_unread ${starling_headers})
while(starling_unread)
  list(POP_FRONT starling_unread header)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${header}")
  file(STRINGS "${PROJECT_SOURCE_DIR}/${header}" lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST starling_headers)
      list(APPEND starling_headers "${included}")
      list(APPEND starling_unread "${included}")
    endif()
  endforeach()
endwhile()
foreach(header IN LISTS starling_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/starling/${folder}")
endforeach()

install(EXPORT StarlingTargets NAMESPACE starling:: DESTINATION "${starling_package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/tools/dev/cmake/StarlingConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/StarlingConfig.cmake" INSTALL_DESTINATION "${starling_package_dir}")
# Below 1.0 nothing is promised between minor versions.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/StarlingConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/StarlingConfig.cmake"
  "${PROJECT_BINARY_DIR}/StarlingConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/tools/dev/cmake/FindCAF.cmake"
  "${PROJECT_SOURCE_DIR}/tools/dev/cmake/StarlingDependencies.cmake" DESTINATION "${starling_package_dir}")

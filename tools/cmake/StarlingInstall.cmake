# Headers, libraries and the CMake package `Starling` with the targets starling::core, ::kernels,
# ::collectives, ::elastic, ::actors and ::program. An installed header is included by the same path as in the
# sources: #include "core/base/bytes.h". tests/install shows a user of the package. Components: `command` is
# bin/starling and the GPU plugin, if that was built; `development` all else.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

set(starling_rooms core kernels collectives elastic actors)
set(starling_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Starling")

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

foreach(room IN LISTS starling_rooms)
  install(TARGETS starling_${room} EXPORT StarlingTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${room}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/starling"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.capnp" PATTERN "cuda" EXCLUDE)
endforeach()
# The whole command line for programs of one's own: #include <starling.h>, starling::program.
install(TARGETS starling_program EXPORT StarlingTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/tools/public/starling.h"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/starling/tools/public")
# What the Cap'n Proto compiler wrote, beside the headers that include it.
install(DIRECTORY "${PROJECT_BINARY_DIR}/generated/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/starling"
  FILES_MATCHING PATTERN "*.capnp.h")

install(EXPORT StarlingTargets NAMESPACE starling:: DESTINATION "${starling_package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/tools/cmake/StarlingConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/StarlingConfig.cmake" INSTALL_DESTINATION "${starling_package_dir}")
# Below 1.0 nothing is promised between minor versions.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/StarlingConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/StarlingConfig.cmake"
  "${PROJECT_BINARY_DIR}/StarlingConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/tools/cmake/FindCAF.cmake"
  "${PROJECT_SOURCE_DIR}/tools/cmake/StarlingDependencies.cmake" DESTINATION "${starling_package_dir}")

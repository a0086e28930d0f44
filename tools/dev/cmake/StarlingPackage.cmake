# The target `deb`: BUILD/starling_VERSION_amd64.deb, the command with its man pages, completions and units of systemd,
# and libstarling-dev, what programs of one's own are built with. The target `pages`: BUILD/pages, the man pages and
# completions (tools/package/pages.py).
if(STARLING_SANITIZE)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(package "${PROJECT_SOURCE_DIR}/tools/package")
set(pages "${PROJECT_BINARY_DIR}/pages")
add_custom_command(OUTPUT "${pages}.made"
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${pages}"
  COMMAND Python3::Interpreter "${package}/pages.py" --out "${pages}" $<TARGET_FILE:starling> $<TARGET_FILE:starling-bench>
  COMMAND "${CMAKE_COMMAND}" -E touch "${pages}.made"
  DEPENDS "${package}/pages.py" starling starling-bench VERBATIM COMMENT "Writing man pages and completions")
add_custom_target(pages DEPENDS "${pages}.made")

# `package` is what only a package of a system has: `cmake --install` alone leaves it out.
install(DIRECTORY "${pages}/" DESTINATION "${CMAKE_INSTALL_DATADIR}" COMPONENT package EXCLUDE_FROM_ALL)
install(FILES "${package}/starling-worker@.service" "${package}/starling-coordinator.service"
  DESTINATION lib/systemd/system COMPONENT package EXCLUDE_FROM_ALL)
install(FILES "${package}/default" DESTINATION /etc/default RENAME starling COMPONENT package EXCLUDE_FROM_ALL)
install(DIRECTORY DESTINATION /etc/starling COMPONENT package EXCLUDE_FROM_ALL)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION share/doc/starling/docs COMPONENT package EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN "*.md" PATTERN decisions EXCLUDE PATTERN figures EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${PROJECT_SOURCE_DIR}/NOTICE"
  DESTINATION share/doc/starling COMPONENT package EXCLUDE_FROM_ALL)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION share/doc/starling COMPONENT package EXCLUDE_FROM_ALL
  PATTERN __pycache__ EXCLUDE)
foreach(name IN ITEMS starling libstarling-dev)
  set(component package)
  if(name STREQUAL "libstarling-dev")
    set(component development)
  endif()
  install(FILES "${package}/copyright" "${PROJECT_BINARY_DIR}/changelog.gz" DESTINATION "share/doc/${name}"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
# The RPATH of the bundle: a system's package has its libraries where the loader looks.
install(CODE [[
  foreach(name IN ITEMS bin/starling bin/starling-bench lib/starling/libstarling_cuda.so)
    set(file "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${name}")
    if(EXISTS "${file}")
      file(RPATH_REMOVE FILE "${file}")
    endif()
  endforeach()]] COMPONENT command)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME starling)
set(CPACK_PACKAGE_VENDOR Starling)
if(NOT CPACK_PACKAGE_CONTACT)  # whoever gives the packages to others says an address here
  set(CPACK_PACKAGE_CONTACT "the authors of Starling <starling@localhost>")
endif()
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL command package development)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENT_COMMAND_GROUP starling)
set(CPACK_COMPONENT_PACKAGE_GROUP starling)
set(CPACK_COMPONENT_DEVELOPMENT_GROUP libstarling-dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_STARLING_PACKAGE_NAME starling)
set(CPACK_DEBIAN_STARLING_PACKAGE_SECTION science)
set(CPACK_DEBIAN_STARLING_DESCRIPTION "elastic training of neural networks on machines that come and go
Workers may be killed, frozen, announced away or added in the middle of a
run; it goes on within milliseconds, reads no checkpoint, and ends with the
same bits as a run that nothing disturbed.")
set(CPACK_DEBIAN_STARLING_PACKAGE_SHLIBDEPS ON)
# The command opens libcurl at run time, for checkpoints in object storage, and libdw, for diagnose; passwd has useradd.
set(CPACK_DEBIAN_STARLING_PACKAGE_DEPENDS "libcurl4, libdw1, ca-certificates, passwd")
set(CPACK_DEBIAN_STARLING_PACKAGE_SUGGESTS "libstarling-dev, man-db, bash-completion")
set(CPACK_DEBIAN_STARLING_PACKAGE_CONTROL_EXTRA "${package}/postinst;${package}/prerm;${package}/postrm;${package}/conffiles")
set(CPACK_DEBIAN_STARLING_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_LIBSTARLING-DEV_PACKAGE_NAME libstarling-dev)
set(CPACK_DEBIAN_LIBSTARLING-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBSTARLING-DEV_DESCRIPTION "elastic training of neural networks, for programs of one's own
Headers, static libraries and the CMake package Starling, with which a
program brings models, data and optimizers of its own, or runs the actors
themselves.")
set(CPACK_DEBIAN_LIBSTARLING-DEV_PACKAGE_DEPENDS
  "libcaf-dev, capnproto, libcapnp-dev, libzmq3-dev, cppzmq-dev, libsodium-dev, libssl-dev, libcurl4-openssl-dev, libxxhash-dev, libpcre2-dev, libutf8proc-dev, libspdlog-dev, libtomlplusplus-dev, libcli11-dev, nlohmann-json3-dev, libfmt-dev, libboost-dev, pkg-config")
include(CPack)

add_custom_target(deb
  COMMAND bash "${package}/deb.sh" "${PROJECT_BINARY_DIR}" "${CMAKE_CPACK_COMMAND}"
  DEPENDS starling starling-bench starling_program pages
  VERBATIM COMMENT "Packing starling and libstarling-dev for Debian")
if(TARGET starling_cuda)
  add_dependencies(deb starling_cuda)
endif()

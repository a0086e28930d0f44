# The target `bundle`: BUILD/bundle, a folder that runs wherever it is unpacked, and the same packed beside it
# (tools/dev/bundle.sh puts it together). What a spot node downloads when it starts, and what is carried to a
# machine with a GPU, which has none of the libraries.
#
# Programs find the bundle's libraries from where they lie themselves. An RPATH and no RUNPATH, as wheels have:
# a RUNPATH is not asked for what a library needs in turn, and Debian's libraries have neither. It is there from
# the first link, so that a program is only copied and stripped; in a build tree it names no folder that exists.

# starling_relocatable(TARGET UP): UP leads from the folder of the program to that of the bundle.
function(starling_relocatable target up)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN/${up}/lib;$ORIGIN/${up}/lib/gcc")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endfunction()

if(STARLING_SANITIZE)
  return()
endif()

set(bundle "${PROJECT_BINARY_DIR}/bundle")
set(bundle_parts --program $<TARGET_FILE:starling> --program $<TARGET_FILE:starling-bench>)
set(bundle_targets starling starling-bench)
starling_relocatable(starling "..")
starling_relocatable(starling-bench "..")
if(TARGET starling_cuda)
  list(APPEND bundle_parts --plugin $<TARGET_FILE:starling_cuda>)
  list(APPEND bundle_targets starling_cuda)
  starling_relocatable(starling_cuda "../..")
endif()
# Tests of what depends on the machine: its instruction set, sockets, files and clocks, and its GPU. They need no
# source tree but tests/fixtures, which the bundle has. (core_tests reads recorded messages; elastic_tests, and those
# of what judges runs, depend on no machine.)
foreach(tests IN ITEMS kernels_tests collectives_tests actors_tests reference_tests gpu_tests transport_times)
  if(TARGET ${tests})
    starling_relocatable(${tests} "../..")
    list(APPEND bundle_parts --test $<TARGET_FILE:${tests}>)
    list(APPEND bundle_targets ${tests})
  endif()
endforeach()

add_custom_target(bundle
  COMMAND bash "${PROJECT_SOURCE_DIR}/tools/dev/bundle.sh" --out "${bundle}"
    --archive "${PROJECT_BINARY_DIR}/starling-${PROJECT_VERSION}-x86_64.tar.gz" ${bundle_parts}
  DEPENDS ${bundle_targets} VERBATIM COMMENT "Putting together ${bundle}")

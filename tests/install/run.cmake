# Installs the build tree, then configures, builds and runs examples/embed and examples/own against the
# installed package alone; the latter as jobs of several processes, with what it brings itself. Arguments: -DBUILD=<build tree> -DSOURCE=<the example> -DCXX=<compiler>
# -DBUILD_TYPE=<type> -DGENERATOR=<generator>
set(work "${BUILD}/install-test")
file(REMOVE_RECURSE "${work}")

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit status ${status}: ${command}\n${text}")
  endif()
  set(step_output "${text}" PARENT_SCOPE)
endfunction()

step("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/prefix")
step("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/command" --component command)
file(GLOB installed RELATIVE "${work}/command" "${work}/command/*" "${work}/command/*/*")
list(REMOVE_ITEM installed lib lib/starling)  # the GPU plugin's
list(SORT installed)
if(NOT installed STREQUAL "bin;bin/starling;bin/starling-bench")
  message(FATAL_ERROR "the component `command` has ${installed}")
endif()
# Whoever has built the command alone installs it without the plugin.
if(EXISTS "${BUILD}/kernels/cuda/cmake_install.cmake")
  file(READ "${BUILD}/kernels/cuda/cmake_install.cmake" script)
  if(script MATCHES "libstarling_cuda" AND NOT script MATCHES "OPTIONAL")
    message(FATAL_ERROR "without the plugin nothing can be installed")
  endif()
endif()

step("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${work}/build" -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_PREFIX_PATH=${work}/prefix")
step("${CMAKE_COMMAND}" --build "${work}/build")
step("${work}/build/embed")
if(NOT step_output MATCHES "step 80 loss 0\\.00[0-9]*\n.*done, digest ([0-9a-f]+)\ndone, digest ([0-9a-f]+)\n$"
   OR NOT CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
  message(FATAL_ERROR "unexpected output: ${step_output}")
endif()

step("${CMAKE_COMMAND}" -S "${SOURCE}/../own" -B "${work}/build-own" -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_PREFIX_PATH=${work}/prefix")
step("${CMAKE_COMMAND}" --build "${work}/build-own")
set(own "${work}/build-own/own")
set(job "${SOURCE}/../own/job.toml")
function(digest_of)  # RUN-ARGUMENTS...
  step("${own}" run "${job}" --steps 150 ${ARGN})
  if(NOT step_output MATCHES "done: version 150, loss [0-9.e-]+, digest ([0-9a-f]+)")
    message(FATAL_ERROR "unexpected output: ${step_output}")
  endif()
  set(digest "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()
digest_of(--workers 1 --out "${work}/one" --checkpoints "${work}/checkpoints")
set(one "${digest}")
digest_of(--workers 3 --out "${work}/three" --checkpoints "${work}/others")
set(three "${digest}")
digest_of(--workers 2 --out "${work}/again" --checkpoints "${work}/checkpoints" --resume)
if(NOT one STREQUAL three OR NOT one STREQUAL digest)
  message(FATAL_ERROR "digests differ: ${one} of one worker, ${three} of three, ${digest} after --resume")
endif()
# The installed command knows nothing of what the program brings, and says so.
execute_process(COMMAND "${work}/prefix/bin/starling" run "${job}" --out "${work}/none"
  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE text)
if(status EQUAL 0 OR NOT text MATCHES "this program has no schedule .fall., it has none")
  message(FATAL_ERROR "exit status ${status}: ${text}")
endif()
file(REMOVE_RECURSE "${work}")

# Installs the build tree, then configures, builds and runs examples/embed against the installed
# package alone. Arguments: -DBUILD=<build tree> -DSOURCE=<the example> -DCXX=<compiler>
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
step("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${work}/build" -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_PREFIX_PATH=${work}/prefix")
step("${CMAKE_COMMAND}" --build "${work}/build")
step("${work}/build/embed")
if(NOT step_output MATCHES "step 80 loss 0\\.00[0-9]*\n.*done, digest ([0-9a-f]+)\ndone, digest ([0-9a-f]+)\n$"
   OR NOT CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
  message(FATAL_ERROR "unexpected output: ${step_output}")
endif()
file(REMOVE_RECURSE "${work}")

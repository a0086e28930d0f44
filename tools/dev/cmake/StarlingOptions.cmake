# Compiler options for our own code, and the functions with which rooms and tests are declared.

find_program(STARLING_CCACHE ccache)
if(STARLING_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${STARLING_CCACHE}")
endif()
find_program(STARLING_MOLD mold)
if(STARLING_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(starling_options INTERFACE)
target_compile_options(starling_options INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 takes the move of a temporary std::variant for uninitialised memory.
  target_compile_options(starling_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(STARLING_WERROR)
  target_compile_options(starling_options INTERFACE -Werror)
endif()
# No contraction of a*b+c behind our back: the bits of a result must not depend on the optimiser.
target_compile_options(starling_options INTERFACE -ffp-contract=off)

if(STARLING_SANITIZE)
  # Little optimisation and lines alone: half the time to compile, and stacks as they are written.
  add_compile_options(-fsanitize=${STARLING_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${STARLING_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # What is checked at run time looks like sizes below zero to g++ 12.
    add_compile_options(-Wno-stringop-overflow)
  endif()
  if(STARLING_SANITIZE MATCHES "undefined")
    # CAF 0.17 binds null references in its spawn templates; everything else stays checked.
    add_compile_options(-fno-sanitize=null -fno-sanitize-recover=undefined)
  endif()
  if(STARLING_SANITIZE MATCHES "thread")
    # Boost.Asio fences beside its locks; the locks are what TSan follows.
    add_compile_options(-Wno-tsan)
  endif()
endif()

# starling_room(NAME): the library starling_NAME (alias starling::NAME) of all sources below this folder.
function(starling_room name)
  file(GLOB_RECURSE sources RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS
    "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "^cuda/")  # a target of its own
  if(NOT sources)
    file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp" "")
    set(sources "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp")
  endif()
  add_library(starling_${name} STATIC ${sources})
  add_library(starling::${name} ALIAS starling_${name})
  set_target_properties(starling_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(starling_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/starling>)
  target_link_libraries(starling_${name} PRIVATE $<BUILD_INTERFACE:starling_options>)
  target_compile_features(starling_${name} PUBLIC cxx_std_20)
endfunction()

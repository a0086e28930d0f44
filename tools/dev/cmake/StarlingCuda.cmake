# The GPU's plugin, kernels/cuda. Nothing else needs CUDA, and no program is linked to it.
#   STARLING_CUDA              AUTO: built if there is nvcc; ON: an error without; OFF: not looked for
#   CMAKE_CUDA_ARCHITECTURES   machine code for these ("90-real" alone compiles four times as fast); at first the
#                              environment's CUDAARCHS, or all that we know

if(NOT STARLING_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "STARLING_CUDA must be AUTO, ON or OFF, is ${STARLING_CUDA}")
endif()

set(STARLING_CUDA_FOUND FALSE)
if(STARLING_SANITIZE OR STARLING_CUDA STREQUAL "OFF")
  set(starling_cuda_text "not looked for; without a GPU plugin")
else()
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(STARLING_NVCC nvcc PATHS /usr/local/cuda/bin)
    mark_as_advanced(STARLING_NVCC)
    if(STARLING_NVCC)
      set(CMAKE_CUDA_COMPILER "${STARLING_NVCC}")
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Code for one generation runs on no other, and none is compiled on the machine that trains: a driver's
    # compiler may give other bits than ours.
    set(starling_generations "80-real;90-real;100-real;120-real")
    if(DEFINED ENV{CUDAARCHS})
      set(starling_generations "$ENV{CUDAARCHS}")
    endif()
    set(CMAKE_CUDA_ARCHITECTURES "${starling_generations}" CACHE STRING
      "Compute capabilities that the GPU plugin is built for")
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
      set(CMAKE_CUDA_STANDARD_LATEST 20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    list(JOIN CMAKE_CUDA_ARCHITECTURES "," STARLING_CUDA_BUILT_FOR)
    set(STARLING_CUDA_FOUND TRUE)
    set(starling_cuda_text "${CMAKE_CUDA_COMPILER_VERSION}, GPU plugin for ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(STARLING_CUDA STREQUAL "ON")
    message(FATAL_ERROR "STARLING_CUDA is ON, but there is no CUDA compiler; CUDACXX may name one")
  else()
    set(starling_cuda_text "no compiler found; without a GPU plugin")
  endif()
endif()
message(STATUS "Starling: CUDA ${starling_cuda_text}")

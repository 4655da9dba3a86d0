# Enables the CUDA language. There may be no GPU to detect, so the architectures are fixed: code for 8.0 and 9.0, and
# PTX of the latter for newer GPUs.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
# The program compares a GPU's compute capability with these. The kernels use instructions of 8.0.
string(REGEX MATCHALL "[0-9]+" SHARDLINE_GPU_CAPABILITIES "${CMAKE_CUDA_ARCHITECTURES}")
list(SORT SHARDLINE_GPU_CAPABILITIES COMPARE NATURAL)
list(REMOVE_DUPLICATES SHARDLINE_GPU_CAPABILITIES)
set(oldest 0)
if(SHARDLINE_GPU_CAPABILITIES)
  list(GET SHARDLINE_GPU_CAPABILITIES 0 oldest)
endif()
# 90 is code for 9.0 and its PTX, 90-real only the code, 90-virtual only the PTX.
string(REGEX MATCHALL "[0-9]+-virtual|[0-9]+-real|[0-9]+" SHARDLINE_GPU_CODE "${CMAKE_CUDA_ARCHITECTURES}")
set(SHARDLINE_GPU_PTX ${SHARDLINE_GPU_CODE})
list(FILTER SHARDLINE_GPU_CODE EXCLUDE REGEX virtual)
list(FILTER SHARDLINE_GPU_PTX EXCLUDE REGEX real)
list(TRANSFORM SHARDLINE_GPU_CODE REPLACE "-real" "")
list(TRANSFORM SHARDLINE_GPU_PTX REPLACE "-virtual" "")
if(oldest LESS 80)
  message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES is \"${CMAKE_CUDA_ARCHITECTURES}\"; name compute capabilities from 80 on")
endif()
# CMake looks for a compiler in PATH, CUDACXX and CUDA_PATH only.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(nvcc nvcc HINTS ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin NO_CACHE)
  if(nvcc)
    set(CMAKE_CUDA_COMPILER ${nvcc})
  endif()
endif()
enable_language(CUDA)
# nvcc 13 takes C++20, but CMake before 3.26 does not know it.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # torch's: a second, static one would have devices and streams of its own

# The kernels and their wrappers in this folder become part of a library. Builds without CUDA leave them out.
function(shardline_cuda_sources target)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  target_sources(${target} PRIVATE ${sources})
  target_compile_definitions(${target} PRIVATE SHARDLINE_CUDA)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;SHELL:-Werror all-warnings>")
endfunction()

# shardline_compile_for_gpus(NAME FILE.cu...): compiles the files with the options of a CUDA build of the library, for
# two generations of GPUs and as PTX for later ones, and checks that GPUs have enough registers for the kernels' blocks.
# On machines without a GPU, nvcc cannot check more; the results of the kernels are tested with their host twins.
find_program(SHARDLINE_NVCC nvcc HINTS ${PROJECT_SOURCE_DIR}/build/_cuda/nvidia/cu13/bin /usr/local/cuda/bin)
if(NOT SHARDLINE_NVCC)
  message(STATUS "nvcc not found (tools/test.sh installs it): CUDA kernels are not compiled for GPUs")
endif()

set(SHARDLINE_COMPILE_FOR_GPUS ${PROJECT_SOURCE_DIR}/tests/core/cuda/compile_for_gpus.py)

function(shardline_compile_for_gpus name)
  if(NOT SHARDLINE_NVCC OR SHARDLINE_CUDA)
    return()
  endif()
  foreach(file IN LISTS ARGN)
    get_filename_component(stem ${file} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${stem}.nvcc.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${TORCHLIB_PYTHON} ${SHARDLINE_COMPILE_FOR_GPUS} ${SHARDLINE_NVCC} -std=c++20 --expt-relaxed-constexpr
              -O2 -I${PROJECT_SOURCE_DIR} -Werror all-warnings
              -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
              -gencode arch=compute_90,code=compute_90 -MD -MF ${object}.d -c ${file} -o ${object}
      DEPENDS ${file} ${SHARDLINE_COMPILE_FOR_GPUS} DEPFILE ${object}.d
      COMMENT "Compiling ${stem}.cu for GPUs" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  add_custom_target(${name}_for_gpus ALL DEPENDS ${objects})
endfunction()

# shardline_compile_cuda_parts(NAME): compiles the sources that have parts for CUDA builds with these parts, as far as
# this machine has their headers. Nothing is linked.
function(shardline_compile_cuda_parts name)
  if(NOT SHARDLINE_NVCC OR SHARDLINE_CUDA)
    return()
  endif()
  get_filename_component(nvcc ${SHARDLINE_NVCC} REALPATH)
  get_filename_component(toolkit ${nvcc} DIRECTORY)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/*.cpp ${PROJECT_SOURCE_DIR}/engine/*.cpp
    ${PROJECT_SOURCE_DIR}/optim/*.cpp ${PROJECT_SOURCE_DIR}/tensor_parallel/*.cpp)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} parts REGEX "^#ifn?def SHARDLINE_CUDA")
    if(NOT parts)
      continue()
    endif()
    file(STRINGS ${source} includes REGEX "^#include <(cuda_runtime|nccl|nvtx3/nvToolsExt)\\.h>")
    set(missing)
    foreach(line IN LISTS includes)
      string(REGEX REPLACE "#include <(.*)>" "\\1" header "${line}")
      string(MAKE_C_IDENTIFIER "SHARDLINE_FOLDER_OF_${header}" folder)
      find_path(${folder} ${header} HINTS ${toolkit}/../include ${toolkit}/../../include
        ${TorchLib_ROOT_DIR}/../nvidia/cu13/include ${TorchLib_ROOT_DIR}/../nvidia/nccl/include /usr/local/cuda/include)
      mark_as_advanced(${folder})
      if(${folder})
        list(APPEND folders ${${folder}})
      else()
        list(APPEND missing ${header})
      endif()
    endforeach()
    if(missing)
      message(STATUS "${missing} not found: the CUDA part of ${source} is not compiled")
    else()
      list(APPEND complete ${source})
    endif()
  endforeach()
  if(NOT complete)
    return()
  endif()
  add_library(${name} OBJECT ${complete})
  target_compile_definitions(${name} PRIVATE SHARDLINE_CUDA SHARDLINE_GPU_CODE=80,90 SHARDLINE_GPU_PTX=90)
  list(REMOVE_DUPLICATES folders)
  target_include_directories(${name} SYSTEM PRIVATE ${folders})
  target_link_libraries(${name} PRIVATE shardline_engine)
  shardline_warnings(${name})
endfunction()

# shardline_compile_for_gpus(NAME FILE.cu...): compiles the files as the library does it in a build for CUDA, for two
# generations of GPUs and as PTX for later ones, and checks that GPUs have the registers for the kernels' blocks. On
# machines without a GPU this is all that nvcc can show; what the kernels compute is tested by their host twins.
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

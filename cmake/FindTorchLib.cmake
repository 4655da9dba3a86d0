# Finds LibTorch as plain files: an unpacked wheel, a zip, or the torch of an installed Python (located, never imported).
# Torch's own CMake package refuses machines without a CUDA toolkit and changes global CUDA flags, so it is not used.
#
#   TORCH_ROOT (variable or environment), CMAKE_PREFIX_PATH, an installed python torch, then <build>/_torch are searched.
#   Result: TorchLib::cpu, and TorchLib::cuda when TORCHLIB_CUDA is on.
set(_tl_candidates "${TORCH_ROOT}" "$ENV{TORCH_ROOT}")
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  file(GLOB _site "${_prefix}/lib/python3*/site-packages/torch")
  list(APPEND _tl_candidates "${_prefix}" "${_prefix}/torch" ${_site} "${_prefix}/../..")
endforeach()
list(APPEND _tl_candidates "${CMAKE_BINARY_DIR}/_torch/torch")
find_program(TORCHLIB_PYTHON NAMES python3 python)
if(TORCHLIB_PYTHON)
  execute_process(COMMAND ${TORCHLIB_PYTHON} -c
    "import importlib.util as u; s=u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _tl_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND _tl_candidates "${_tl_python}")
endif()

set(TorchLib_ROOT_DIR TorchLib_ROOT_DIR-NOTFOUND)
foreach(_candidate IN LISTS _tl_candidates)
  if(NOT TorchLib_ROOT_DIR AND _candidate AND EXISTS "${_candidate}/lib/libtorch_cpu.so")
    get_filename_component(TorchLib_ROOT_DIR "${_candidate}" REALPATH)
  endif()
endforeach()

if(TorchLib_ROOT_DIR AND EXISTS "${TorchLib_ROOT_DIR}/version.py")
  file(STRINGS "${TorchLib_ROOT_DIR}/version.py" _tl_line REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchLib_VERSION "${_tl_line}")
elseif(TorchLib_ROOT_DIR AND EXISTS "${TorchLib_ROOT_DIR}/build-version")
  file(STRINGS "${TorchLib_ROOT_DIR}/build-version" _tl_line)
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchLib_VERSION "${_tl_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchLib REQUIRED_VARS TorchLib_ROOT_DIR VERSION_VAR TorchLib_VERSION)

if(TorchLib_FOUND AND NOT TARGET TorchLib::cpu)
  function(_tl_shared name file)
    add_library(TorchLib::${name} SHARED IMPORTED)
    set_target_properties(TorchLib::${name} PROPERTIES IMPORTED_LOCATION "${TorchLib_ROOT_DIR}/lib/${file}")
    target_include_directories(TorchLib::${name} SYSTEM INTERFACE
      "${TorchLib_ROOT_DIR}/include" "${TorchLib_ROOT_DIR}/include/torch/csrc/api/include")
  endfunction()
  _tl_shared(c10 libc10.so)
  _tl_shared(torch_cpu libtorch_cpu.so)
  add_library(TorchLib::cpu INTERFACE IMPORTED)
  target_link_libraries(TorchLib::cpu INTERFACE TorchLib::torch_cpu TorchLib::c10)
  # Torch's wheels are built with NDEBUG, and at::RecordFunction, which the library uses, has another layout without it.
  # So it is set where shardline itself is compiled. Programs that use the library decide for themselves, as with
  # LibTorch's own package, because no public header has such a class by value.
  target_compile_definitions(TorchLib::cpu INTERFACE $<$<BOOL:$<TARGET_PROPERTY:SHARDLINE_OWN>>:NDEBUG>)

  if(TORCHLIB_CUDA)
    if(NOT EXISTS "${TorchLib_ROOT_DIR}/lib/libtorch_cuda.so")
      message(FATAL_ERROR "${TorchLib_ROOT_DIR} is LibTorch without CUDA (lib/libtorch_cuda.so is missing); set "
        "TORCH_ROOT to one with CUDA, or leave out -DSHARDLINE_CUDA=ON")
    endif()
    find_package(CUDAToolkit REQUIRED)
    file(STRINGS "${TorchLib_ROOT_DIR}/lib/libc10_cuda.so" runtime REGEX "libcudart\\.so\\.[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "libcudart\\.so\\.([0-9]+)" runtime "${runtime}")
    if(runtime AND NOT CMAKE_MATCH_1 STREQUAL CUDAToolkit_VERSION_MAJOR)
      message(FATAL_ERROR "LibTorch in ${TorchLib_ROOT_DIR} is for CUDA ${CMAKE_MATCH_1}, but the toolkit in "
        "${CUDAToolkit_BIN_DIR} is CUDA ${CUDAToolkit_VERSION}; use a toolkit of the same major version "
        "(-DCMAKE_CUDA_COMPILER) or another LibTorch (TORCH_ROOT)")
    endif()
    _tl_shared(c10_cuda libc10_cuda.so)
    _tl_shared(torch_cuda libtorch_cuda.so)
    find_path(TORCHLIB_NCCL_INCLUDE nccl.h
      HINTS ${CUDAToolkit_INCLUDE_DIRS} "${TorchLib_ROOT_DIR}/../nvidia/nccl/include")
    find_library(TORCHLIB_NCCL_LIB NAMES libnccl.so.2 nccl
      HINTS "${TorchLib_ROOT_DIR}/../nvidia/nccl/lib" ${CUDAToolkit_LIBRARY_DIR})
    if(NOT TORCHLIB_NCCL_INCLUDE OR NOT TORCHLIB_NCCL_LIB)
      message(FATAL_ERROR "NCCL's nccl.h or libnccl.so.2 is missing; install it (wheel nvidia-nccl-cu13 next to "
        "LibTorch, package libnccl-dev), or set -DTORCHLIB_NCCL_INCLUDE=FOLDER and -DTORCHLIB_NCCL_LIB=FILE")
    endif()
    add_library(TorchLib::nccl SHARED IMPORTED)
    set_target_properties(TorchLib::nccl PROPERTIES
      IMPORTED_LOCATION "${TORCHLIB_NCCL_LIB}" INTERFACE_INCLUDE_DIRECTORIES "${TORCHLIB_NCCL_INCLUDE}")
    add_library(TorchLib::cuda INTERFACE IMPORTED)
    target_link_libraries(TorchLib::cuda INTERFACE
      TorchLib::cpu TorchLib::torch_cuda TorchLib::c10_cuda TorchLib::nccl CUDA::cudart)
    # No symbol of libtorch_cuda is referenced, so the linker would drop it without --no-as-needed.
    target_link_options(TorchLib::cuda INTERFACE
      "LINKER:--push-state,--no-as-needed,${TorchLib_ROOT_DIR}/lib/libtorch_cuda.so,--pop-state"
      "LINKER:-rpath-link,${CUDAToolkit_LIBRARY_DIR}")
  endif()
endif()

# Finds Apache Arrow's C++ libraries, with Parquet's, in an unpacked wheel of pyarrow or that of an installed Python
# (located, never imported). The wheel has headers and libraries, but no CMake package.
#
#   ARROW_ROOT (variable or environment: the folder pyarrow), CMAKE_PREFIX_PATH, then an installed python's pyarrow are
#   searched. Result: ArrowLib::parquet.
set(_al_candidates "${ARROW_ROOT}" "$ENV{ARROW_ROOT}")
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  file(GLOB _site "${_prefix}/lib/python3*/site-packages/pyarrow")
  list(APPEND _al_candidates "${_prefix}" "${_prefix}/pyarrow" ${_site})
endforeach()
find_program(ARROWLIB_PYTHON NAMES python3 python)
if(ARROWLIB_PYTHON)
  execute_process(COMMAND ${ARROWLIB_PYTHON} -c
    "import importlib.util as u; s=u.find_spec('pyarrow'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _al_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND _al_candidates "${_al_python}")
endif()

set(ArrowLib_ROOT_DIR ArrowLib_ROOT_DIR-NOTFOUND)
foreach(_candidate IN LISTS _al_candidates)
  file(GLOB _al_arrow "${_candidate}/libarrow.so.*")
  file(GLOB _al_parquet "${_candidate}/libparquet.so.*")
  if(NOT ArrowLib_ROOT_DIR AND _al_arrow AND _al_parquet AND EXISTS "${_candidate}/include/parquet/arrow/reader.h")
    get_filename_component(ArrowLib_ROOT_DIR "${_candidate}" REALPATH)
    list(GET _al_arrow 0 ArrowLib_ARROW)
    list(GET _al_parquet 0 ArrowLib_PARQUET)
  endif()
endforeach()
if(ArrowLib_ROOT_DIR)
  file(STRINGS "${ArrowLib_ROOT_DIR}/include/arrow/util/config.h" _al_line REGEX "ARROW_VERSION_STRING")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" ArrowLib_VERSION "${_al_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowLib REQUIRED_VARS ArrowLib_ROOT_DIR VERSION_VAR ArrowLib_VERSION)

if(ArrowLib_FOUND AND NOT TARGET ArrowLib::parquet)
  add_library(ArrowLib::arrow SHARED IMPORTED)
  set_target_properties(ArrowLib::arrow PROPERTIES IMPORTED_LOCATION "${ArrowLib_ARROW}")
  target_include_directories(ArrowLib::arrow SYSTEM INTERFACE "${ArrowLib_ROOT_DIR}/include")
  add_library(ArrowLib::parquet SHARED IMPORTED)
  set_target_properties(ArrowLib::parquet PROPERTIES IMPORTED_LOCATION "${ArrowLib_PARQUET}")
  target_link_libraries(ArrowLib::parquet INTERFACE ArrowLib::arrow)
endif()

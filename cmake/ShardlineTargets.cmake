# shardline_library(NAME DEPENDENCY...): a library of all sources in this folder and its subfolders, installed as
# shardline::NAME.
# shardline_test(NAME LABEL DEPENDENCY...): a Catch2 program of all *_test.cpp in this folder and its subfolders.
# PROCESSORS counts half cores: most suites use one core (2), with one OpenMP thread, because two threads would take five
# times as long while another suite uses a core. Set PROCESSORS to 4 and ENVIRONMENT to empty for suites that should
# have all cores, and PROCESSORS to 1 for those that spend most of their time waiting.
# A subfolder with a CMakeLists.txt of its own is not part of either.

# The files below this folder that match PATTERN, without those of subfolders that have a CMakeLists.txt.
function(shardline_sources out pattern)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${pattern})
  file(GLOB_RECURSE scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt)
  list(REMOVE_ITEM scripts ${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt)
  foreach(script IN LISTS scripts)
    get_filename_component(folder ${script} DIRECTORY)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

function(shardline_warnings target)
  set(flags -Wall -Wextra -Wshadow -Wno-unused-parameter -Wno-missing-field-initializers)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -Wno-array-bounds -Wno-stringop-overflow)  # wrong about nlohmann's maps in 12
  endif()
  if(SHARDLINE_DEVELOPER)
    list(APPEND flags -Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
endfunction()

function(shardline_library name)
  shardline_sources(sources *.cpp)
  if(NOT sources)
    add_library(shardline_${name} INTERFACE)
    target_link_libraries(shardline_${name} INTERFACE ${ARGN})
  else()
    add_library(shardline_${name} ${sources})
    target_include_directories(shardline_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    if(NOT PROJECT_IS_TOP_LEVEL)  # for projects with this one as a subdirectory; see cmake/write_public_headers.cmake
      target_include_directories(shardline_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)
    endif()
    target_compile_features(shardline_${name} PUBLIC cxx_std_20)
    target_link_libraries(shardline_${name} PUBLIC ${ARGN})
    shardline_warnings(shardline_${name})
    target_precompile_headers(shardline_${name} REUSE_FROM shardline_precompiled)
  endif()
  set_target_properties(shardline_${name} PROPERTIES EXPORT_NAME ${name})
  add_library(shardline::${name} ALIAS shardline_${name})
  if(SHARDLINE_INSTALL)
    install(TARGETS shardline_${name} EXPORT shardlineTargets)
  endif()
endfunction()

# Settings of all test programs and their libraries. The precompiled header is compiled as position-independent code, as
# libraries need it, so the programs are compiled with the same option.
function(shardline_test_program target)
  target_link_libraries(${target} PRIVATE catch_runner)
  target_precompile_headers(${target} REUSE_FROM catch_runner)
  target_compile_options(${target} PRIVATE -fPIC)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  shardline_warnings(${target})
endfunction()

function(shardline_test name label)
  shardline_sources(sources *_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_tests ${sources})
  target_link_libraries(${name}_tests PRIVATE ${ARGN})
  shardline_test_program(${name}_tests)
  add_test(NAME ${name} COMMAND ${name}_tests)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 600 PROCESSORS 2 ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()

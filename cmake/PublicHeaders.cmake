# The headers as users include them, in include/ of the build tree.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/core/*.h
  ${PROJECT_SOURCE_DIR}/tensor_parallel/*.h ${PROJECT_SOURCE_DIR}/optim/*.h ${PROJECT_SOURCE_DIR}/pipeline/*.h
  ${PROJECT_SOURCE_DIR}/partitioner/*.h ${PROJECT_SOURCE_DIR}/models/*.h ${PROJECT_SOURCE_DIR}/engine/*.h)
set(stamp ${PROJECT_BINARY_DIR}/public_headers.stamp)
add_custom_command(OUTPUT ${stamp}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DTARGET=${PROJECT_BINARY_DIR}/include
          -P ${PROJECT_SOURCE_DIR}/cmake/write_public_headers.cmake
  COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
  DEPENDS ${headers} ${PROJECT_SOURCE_DIR}/cmake/write_public_headers.cmake VERBATIM)
add_custom_target(shardline_headers ALL DEPENDS ${stamp})
add_dependencies(shardline_api shardline_headers)

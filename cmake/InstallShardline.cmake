# What `cmake --install` and packages contain: the program, the libraries, their headers and the CMake package.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_BINARY_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/shardline)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" SHARDLINE_TORCH_RELEASE ${TorchLib_VERSION})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/shardlineConfig.cmake.in
  ${PROJECT_BINARY_DIR}/shardlineConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardlineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardlineConfig.cmake ${PROJECT_BINARY_DIR}/shardlineConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindTorchLib.cmake DESTINATION ${package})
install(EXPORT shardlineTargets NAMESPACE shardline:: DESTINATION ${package})

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/shardline)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/shardline PATTERN build EXCLUDE)
if(SHARDLINE_PROGRAM)
  configure_file(${PROJECT_SOURCE_DIR}/packaging/shardline.1 ${PROJECT_BINARY_DIR}/shardline.1 @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/shardline.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/shardline.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME shardline)
endif()

# cpack -G DEB|TGZ. LibTorch is not a Debian package: it is found in /opt/libtorch, where it was at build time, or
# through LD_LIBRARY_PATH.
set(CPACK_PACKAGE_NAME shardline)
set(CPACK_PACKAGE_VENDOR shardline)
set(CPACK_PACKAGE_CONTACT "the authors of shardline")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Model-parallel training of transformers on LibTorch: program, library and headers")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR TGZ)
if(EXISTS /etc/debian_version)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(depends libicu72 libpcre2-8-0 libxxhash0 libzstd1 zlib1g libgomp1 libstdc++6)
set(recommends nlohmann-json3-dev libicu-dev libpcre2-dev libxxhash-dev libzstd-dev zlib1g-dev pkg-config)  # to build against the library
if(SHARDLINE_MPI)
  list(APPEND depends libopenmpi3 openmpi-bin)
  list(APPEND recommends libopenmpi-dev)
endif()
if(TARGET shardline_onednn)
  list(APPEND depends libdnnl2)
endif()
if(YAML_FOUND)
  list(APPEND depends libyaml-0-2)
  list(APPEND recommends libyaml-dev)
endif()
if(SHARDLINE_SERVE)
  list(APPEND depends libarchive13)
  list(APPEND recommends libarchive-dev)
endif()
list(JOIN depends ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
list(JOIN recommends ", " CPACK_DEBIAN_PACKAGE_RECOMMENDS)
include(CPack)

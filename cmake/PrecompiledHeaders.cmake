# What most sources of the libraries include: shardline_library reuses it, which halves the compiler's time. A target of
# its own, because g++ accepts a precompiled header only where all of its definitions are the same.
file(CONFIGURE OUTPUT no_code.cpp CONTENT "")
add_library(shardline_precompiled OBJECT ${CMAKE_CURRENT_BINARY_DIR}/no_code.cpp)
target_link_libraries(shardline_precompiled PRIVATE TorchLib::cpu nlohmann_json::nlohmann_json)
target_compile_features(shardline_precompiled PRIVATE cxx_std_20)
target_compile_definitions(shardline_precompiled PRIVATE
  $<TARGET_PROPERTY:shardline_core,INTERFACE_COMPILE_DEFINITIONS>)
target_compile_options(shardline_precompiled PRIVATE $<TARGET_PROPERTY:shardline_core,INTERFACE_COMPILE_OPTIONS>)
target_precompile_headers(shardline_precompiled PRIVATE
  <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <nlohmann/json.hpp>
  <algorithm> <chrono> <cmath> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <set>
  <sstream> <string> <thread> <vector>)

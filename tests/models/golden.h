// Recorded files with which tests of models compare their results.
#pragma once
#include <string>

namespace shardline {

inline std::string golden(const std::string& name) {
  return std::string(SHARDLINE_MODELS_TESTS "/golden/") + name;
}

}  // namespace shardline

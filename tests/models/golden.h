// The recorded files that tests of models are compared with.
#pragma once
#include <string>

namespace shardline {

inline std::string golden(const std::string& name) {
  return std::string(SHARDLINE_MODELS_TESTS "/golden/") + name;
}

}  // namespace shardline

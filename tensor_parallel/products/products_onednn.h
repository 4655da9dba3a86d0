// Finds and loads libshardline_onednn.so (onednn/onednn.h) at first use.
#pragma once
#include <string>

#include "tensor_parallel/products/onednn/onednn.h"

namespace shardline {

struct OnednnLibrary {
  decltype(&shardline_onednn_matmul) matmul = nullptr;  // null: not available
  decltype(&shardline_onednn_prepared) prepared = nullptr;
  bool multiplies_bf16 = false;  // whether this processor does
  std::string name;              // "oneDNN 2.6.3"
  std::string why_not;           // for the error message if a user requests it
};

const OnednnLibrary& onednn_library();

}  // namespace shardline

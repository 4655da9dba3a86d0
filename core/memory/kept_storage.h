// The memory under a set of tensors: each storage once.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace shardline {

struct KeptStorage {
  std::vector<at::Tensor> tensors;  // handles that see it
  int64_t bytes = 0;                // of it that they see; it may be a channel's buffer that is larger
};

// Without tensors that are undefined or have no memory now.
std::vector<KeptStorage> storages_of(const std::vector<at::Tensor>& tensors);
int64_t bytes_of(const std::vector<KeptStorage>& storages);

}  // namespace shardline

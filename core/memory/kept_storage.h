// The memory of a set of tensors, counting each storage once.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace shardline {

struct KeptStorage {
  std::vector<at::Tensor> tensors;  // handles that share the storage
  int64_t bytes = 0;                // bytes that they use of the storage, which may be larger: a channel's buffer
};

// Ignores tensors that are undefined or currently have no memory.
std::vector<KeptStorage> storages_of(const std::vector<at::Tensor>& tensors);
int64_t bytes_of(const std::vector<KeptStorage>& storages);

}  // namespace shardline

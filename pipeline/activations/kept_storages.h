// The memory under a set of tensors: each storage once, and tensors that give theirs away for a while.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "pipeline/activations/offload.h"

namespace shardline {

struct KeptStorage {
  std::vector<at::Tensor> tensors;  // handles that see it
  int64_t bytes = 0;                // of it that they see; it may be a channel's buffer that is larger
};

// Without tensors that are undefined or have no memory now.
std::vector<KeptStorage> storages_of(const std::vector<at::Tensor>& tensors);
int64_t bytes_of(const std::vector<KeptStorage>& storages);

// Tensors whose values are in an OffloadSpace. The handles stay, without memory; those that shared a storage share one
// again when they are back. Another handle to such a storage keeps it alive.
class MovedOut {
 public:
  MovedOut(std::vector<KeptStorage> storages, OffloadSpace& space);
  int64_t fetch();  // makes room and starts to fill it; returns the bytes
  void take();      // waits for that: the handles are whole again
 private:
  std::vector<KeptStorage> storages_;
  std::unique_ptr<Away> away_;
};

}  // namespace shardline

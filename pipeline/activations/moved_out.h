// Tensors that give their memory away for a while.
#pragma once
#include <memory>
#include <vector>

#include "core/memory/kept_storage.h"
#include "pipeline/activations/offload.h"

namespace shardline {

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

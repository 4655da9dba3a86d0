// Tensors that have no memory while their values are offloaded.
#pragma once
#include <memory>
#include <vector>

#include "core/memory/kept_storage.h"
#include "pipeline/activations/offload.h"

namespace shardline {

// Tensors whose values are in an OffloadSpace. Their handles stay valid but have no memory; handles that shared a
// storage share one again afterwards. Any other handle to such a storage keeps its memory allocated.
class MovedOut {
 public:
  MovedOut(std::vector<KeptStorage> storages, OffloadSpace& space);
  int64_t fetch();  // allocates memory and starts to fill it; returns its bytes
  void take();      // waits for the fetch; afterwards the handles have their values again
 private:
  std::vector<KeptStorage> storages_;
  std::unique_ptr<Away> away_;
};

}  // namespace shardline

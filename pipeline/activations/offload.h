// Where activations wait between forward and backward: outside the device. The inputs of recomputed groups do, and by
// option all that the other layers keep.
//
// The horizon is counted in instructions of the stage's list: a layer's (or group's) tensors leave right after it ran
// forward, and are back when the instruction `horizon` places before its BackwardInput begins. What would come back
// within the horizon stays.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

struct OffloadOptions {
  bool enabled = false;
  int horizon = 4;          // instructions
  bool everything = false;  // also what layers that are not recomputed keep
  bool operator==(const OffloadOptions&) const = default;
};

// Whether what is made by instruction `forward` and used by instruction `backward` may move out.
inline bool moves_out(const OffloadOptions& options, size_t forward, size_t backward) {
  return options.enabled && can_be_away(forward, backward, options.horizon);
}

// Tensors that are away. Dropping this frees their places.
class Away {
 public:
  virtual ~Away() = default;
  virtual int64_t fetch() = 0;                 // allocates the tensors and starts to fill them; returns their bytes
  virtual std::vector<at::Tensor> take() = 0;  // waits for that and returns them; once
};

class OffloadSpace {
 public:
  virtual ~OffloadSpace() = default;
  // The values are safe when this returns (CPU) or in the order of the current stream (accelerators): the caller may
  // let go of the tensors.
  virtual std::unique_ptr<Away> store(const std::vector<at::Tensor>& tensors) = 0;
};

// CPUs: a nameless file in `directory`, one for each rank. It is written and read around the page cache's back: pages
// are dropped once they are on the disk. Throws ConfigError where the directory cannot be written to, and RunError when
// the disk is full.
std::unique_ptr<OffloadSpace> offload_to_file(const std::string& directory);

// Accelerators: pinned host memory, over two streams of their own, one for each direction.
std::unique_ptr<OffloadSpace> offload_to_host(at::Device device);

}  // namespace shardline

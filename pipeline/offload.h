// Where the inputs of recomputed groups wait between forward and backward: outside the device.
//
// The horizon is counted in instructions of the stage's list: an input leaves right after its group ran forward, and is
// back when the instruction `horizon` places before its BackwardInput begins. What would come back within the horizon
// stays.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace shardline {

struct OffloadOptions {
  bool enabled = false;
  int horizon = 4;  // instructions
  bool operator==(const OffloadOptions&) const = default;
};

// Whether an input that is made by instruction `forward` and used by instruction `backward` moves out.
inline bool moves_out(const OffloadOptions& options, size_t forward, size_t backward) {
  return options.enabled && backward > forward + static_cast<size_t>(options.horizon);
}

// A tensor that is away. Dropping it frees its place.
class Away {
 public:
  virtual ~Away() = default;
  virtual int64_t fetch() = 0;    // allocates the tensor and starts to fill it; returns its bytes
  virtual at::Tensor take() = 0;  // waits for that and returns it; once
};

class OffloadSpace {
 public:
  virtual ~OffloadSpace() = default;
  // The tensor's values are safe when this returns (CPU) or in the order of the current stream (accelerators): the
  // caller may let go of it.
  virtual std::unique_ptr<Away> store(const at::Tensor& tensor) = 0;
};

// CPUs: a nameless file in `directory`, one for each rank. It is written and read around the page cache's back: pages
// are dropped once they are on the disk. Throws ConfigError where the directory cannot be written to, and RunError when
// the disk is full.
std::unique_ptr<OffloadSpace> offload_to_file(const std::string& directory);

// Accelerators: pinned host memory, over two streams of their own, one for each direction.
std::unique_ptr<OffloadSpace> offload_to_host(at::Device device);

}  // namespace shardline

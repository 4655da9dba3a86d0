// Storage outside the device for activations between forward and backward: for the inputs of recomputed groups, and
// optionally for everything that other layers keep.
//
// The horizon is measured in instructions of the stage's list: the tensors of a layer (or group) are offloaded right
// after its forward, and are back `horizon` instructions before their BackwardInput begins. Tensors that would have to
// come back within the horizon are not offloaded.
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
  bool everything = false;  // also offload what non-recomputed layers keep
  bool operator==(const OffloadOptions&) const = default;
};

// Whether what a layer (or a group of recomputed layers) keeps is offloaded if the schedule leaves time for it.
inline bool may_move_out(const OffloadOptions& options, bool recomputed) {
  return options.enabled && (recomputed || options.everything);
}

// Whether the result of instruction `forward`, used by instruction `backward`, may be offloaded.
inline bool moves_out(const OffloadOptions& options, size_t forward, size_t backward) {
  return options.enabled && can_be_away(forward, backward, options.horizon);
}

// A set of offloaded tensors. The destructor frees their space.
class Away {
 public:
  virtual ~Away() = default;
  virtual int64_t fetch() = 0;                 // allocates the tensors and starts to fill them; returns their bytes
  virtual std::vector<at::Tensor> take() = 0;  // waits for the fetch and returns the tensors; call it once
};

class OffloadSpace {
 public:
  virtual ~OffloadSpace() = default;
  // Afterwards the caller may release the tensors. On CPUs the values are stored when this returns. An accelerator
  // copies them later, so this object keeps the tensors until the second store after this one.
  virtual std::unique_ptr<Away> store(const std::vector<at::Tensor>& tensors) = 0;
  virtual int64_t leaving_bytes() const { return 0; }  // size of the tensors kept in this way
  virtual void let_go() {}                             // releases these tensors
};

// How many stores of an accelerator keep their tensors at the end of a store.
inline constexpr size_t kLeavingStores = 2;

// For CPUs: an unnamed file in `directory`, one per rank. Pages are dropped from the page cache once they are on disk.
// Throws ConfigError if the directory is not writable, and RunError if the disk is full.
std::unique_ptr<OffloadSpace> offload_to_file(const std::string& directory);

// For accelerators: page-locked host memory, with a stream for each direction.
std::unique_ptr<OffloadSpace> offload_to_host(at::Device device);

}  // namespace shardline

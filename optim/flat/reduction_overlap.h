// Which reductions of gradients may still run while the gradients of another layer are opened. ReductionQueue
// follows this rule, and the memory model counts by it.
#pragma once
#include "optim/flat/flat_layout.h"

namespace shardline {

// Whether the reduction of a microbatch's whole gradients (`elements` of layer `reduced`) must end before gradients of
// layer `opened` are opened. Only the layer that was closed last may still be reduced while another layer's gradients
// are made, and not if its reduction is too large to overlap.
inline bool must_end_before(const Sharding& sharding, int64_t elements, int reduced, int opened, int last_closed) {
  return sharding.reduces_alone(elements) || reduced == opened || reduced != last_closed;
}

}  // namespace shardline

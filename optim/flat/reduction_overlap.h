// Which gradient reductions may still run while another layer's gradients are opened. ReductionQueue follows this
// rule, and so does the memory model.
#pragma once
#include "optim/flat/flat_layout.h"

namespace shardline {

// Whether the reduction of a microbatch's whole gradients (`elements` of layer `reduced`) must end before gradients of
// layer `opened` are opened. Only the last closed layer may still be in reduction while another layer computes its
// gradients, and only if its reduction is not too large to overlap.
inline bool must_end_before(const Sharding& sharding, int64_t elements, int reduced, int opened, int last_closed) {
  return sharding.reduces_alone(elements) || reduced == opened || reduced != last_closed;
}

}  // namespace shardline

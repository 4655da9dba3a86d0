// The random words of core/numbers/philox.h made by ATen's operators, where the tensors are.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/numbers/philox.h"

namespace shardline::aten {

// Bool: whether word(element) < probability_of_keeping * 2^32, in the stream of each `sample`; both int64 of sizes that
// broadcast, samples below 2^32. stream.sample is not used.
at::Tensor random_keep(const RandomStream& stream, const at::Tensor& sample, const at::Tensor& element,
                       double probability_of_keeping);

}  // namespace shardline::aten

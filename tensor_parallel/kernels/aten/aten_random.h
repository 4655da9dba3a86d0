// The random words of core/numbers/philox.h, computed with ATen's operators on the device of the tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/numbers/philox.h"

namespace shardline::aten {

// Returns word(element) in the stream of each `sample`. Both are int64 and are broadcast; the result is int64. Samples
// must be below 2^32. stream.sample is ignored.
at::Tensor random_words(const RandomStream& stream, const at::Tensor& sample, const at::Tensor& element);

// Returns a bool tensor: whether each of these words is below probability_of_keeping * 2^32.
at::Tensor random_keep(const RandomStream& stream, const at::Tensor& sample, const at::Tensor& element,
                       double probability_of_keeping);

}  // namespace shardline::aten

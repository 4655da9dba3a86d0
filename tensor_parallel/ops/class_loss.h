// Cross entropy of logits that exist, whose classes are split over the T ranks.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/model_spec.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

struct ClassSplit {
  int64_t count = 0;       // of all classes
  Range mine;              // those of this rank
  int64_t ignored = -100;  // the target of rows that do not count
  double smoothing = 0;    // the share of a target's probability that all classes get in equal parts
};

// The sum of the losses of rows, a scalar with a backward. logits [rows, classes of this rank], fp32 or wider; target
// [rows] int64, of all classes.
at::Tensor split_cross_entropy_sum(const TensorParallel& tp, const at::Tensor& logits, const at::Tensor& target,
                                   const ClassSplit& classes);

}  // namespace shardline

// Cross entropy of given logits whose classes are split over the T ranks.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/model_spec.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

struct ClassSplit {
  int64_t count = 0;       // number of all classes
  Range mine;              // the classes of this rank
  int64_t ignored = -100;  // the target of rows that are not counted
  double smoothing = 0;    // the part of a target's probability that is spread equally over all classes
};

// The sum of the losses of rows, a scalar with a backward. logits [rows, classes of this rank], fp32 or wider; target
// [rows] int64, among all classes.
at::Tensor split_cross_entropy_sum(const TensorParallel& tp, const at::Tensor& logits, const at::Tensor& target,
                                   const ClassSplit& classes);

}  // namespace shardline

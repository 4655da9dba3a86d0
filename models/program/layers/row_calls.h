// The calls with which the ranks of a tensor-parallel group exchange data inside a program.
#pragma once
#include "models/program/interpreter.h"
#include "models/program/program_inputs.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// The calls of program_split.h. tp: without sequence parallelism. If rows are divided, the batches must be those of a
// program without a target.
OwnCalls calls_over(const TensorParallel& tp);

}  // namespace shardline

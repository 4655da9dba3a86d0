// The calls with which the ranks of a tensor-parallel group exchange data inside a program.
#pragma once
#include "models/program/interpreter.h"
#include "models/program/program_inputs.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// The calls of program_split.h. tp: without sequence parallelism. They must not outlive `batch`; if rows are divided,
// it must be for a program without a target.
OwnCalls calls_over(const TensorParallel& tp, const ProgramBatch& batch);

}  // namespace shardline

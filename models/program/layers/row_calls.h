// What a rank calls where the ranks of a tensor-parallel group meet inside of a program.
#pragma once
#include "models/program/interpreter.h"
#include "models/program/program_inputs.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// The calls of program_split.h. tp: without sequence parallelism. They must not outlive `batch`, which is of a program
// without a target where rows are divided.
OwnCalls calls_over(const TensorParallel& tp, const ProgramBatch& batch);

}  // namespace shardline

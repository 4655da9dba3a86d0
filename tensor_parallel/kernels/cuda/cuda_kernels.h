// The functions of kernels.h with our CUDA kernels. ATen handles fp64, and shapes that no kernel supports.
#pragma once
#include "tensor_parallel/kernels/kernel_table.h"

namespace shardline::cuda {

const KernelTable& kernel_table();

}  // namespace shardline::cuda

// Checks that a table of CUDA kernels gives the same results as our loops on CPUs: the host twins on CPU tensors, the
// kernels on a GPU.
#pragma once
#include <c10/core/Device.h>

#include "tensor_parallel/kernels/kernel_table.h"

namespace shardline::testing {

void check_row_kernels(const KernelTable& kernels, at::Device device, int64_t rows, int64_t features);
void check_head_kernels(const KernelTable& kernels, at::Device device, int64_t length, int64_t head_dim, int64_t words);

}  // namespace shardline::testing

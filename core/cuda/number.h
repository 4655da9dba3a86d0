// The types of the numbers that kernels read and write.
#pragma once

namespace shardline::cuda {

enum class Number { fp32, bf16, fp16 };

}  // namespace shardline::cuda

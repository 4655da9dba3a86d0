// What a GPT block keeps on a GPU between forward and backward, by the published counting of Korthikanti et al. 2022
// (arXiv 2205.05198, table 2), with any size of a value in place of 16 bits. It is for models that were not measured;
// it is not the count of what our own ops keep on a CPU.
#pragma once
#include "core/model/layer_work.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// Bytes of one microbatch on one rank. shape.fused: scores are made again in blocks and need not be kept, so that what
// remains is as with a recomputed core, and a sum for each row of scores.
double block_activation_bytes(int64_t hidden, int64_t heads, const WorkShape& shape, Recompute::What recomputed);

}  // namespace shardline

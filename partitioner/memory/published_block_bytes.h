// What a GPT block keeps on a GPU between forward and backward, counted as in Korthikanti et al. 2022 (arXiv
// 2205.05198, table 2), but for any value size, not only 16 bits. Used for programs other than ours; our own ops count
// what they keep.
#pragma once
#include "core/model/layer_work.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// Bytes of one microbatch on one rank. shape.fused: scores are recomputed in blocks and not kept, so a block keeps as
// much as with a recomputed attention core, plus a sum for each row of scores.
double block_activation_bytes(int64_t hidden, int64_t heads, const WorkShape& shape, Recompute::What recomputed);

}  // namespace shardline

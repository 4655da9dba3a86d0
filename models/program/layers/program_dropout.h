// Dropout of programs, with masks that are the same in every layout.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "models/program/program.h"
#include "models/program/program_inputs.h"
#include "models/program/program_split.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// What a random call applies to: rows, one row of each segment, or pairs of rows.
struct DropoutSite {
  enum class Kind { rows, segments, pairs, unknown } kind = Kind::unknown;
  bool of_target = false, with_target = false;  // whether rows, or first rows of pairs, are of the target; second rows
  bool is_length_first = false;                 // rows of [length, batch, features]
};

DropoutSite site_of(const Program& program, const GraphNode& node);

// Drops elements of x and scales the others. rows: those of the microbatch. part: the features or heads in x; null:
// all.
at::Tensor dropped(const TensorParallel& tp, const at::Tensor& x, DropoutRows rows, const DropoutSite& site,
                   const ProgramBatch& batch, const DividedDimension* part);

// The dropout with which attention kernels drop the same elements of a site of pairs, without a mask in memory; nothing
// if they cannot: for padded samples, and queries of a target with keys of a source.
std::optional<AttentionDropout> attention_dropout(const TensorParallel& tp, const DropoutRows& rows,
                                                  const DropoutSite& site, const ProgramBatch& batch,
                                                  const DividedDimension* part);

}  // namespace shardline

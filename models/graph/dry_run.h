// Determines what a layer costs before anything is allocated: runs the layer's own code, forward and backward, on meta
// tensors of the real shapes, with a communicator that transfers nothing. It counts the bytes that the layer allocates,
// frees and keeps, while the layer's ops record their work (core/model/work_notes.h).
//
// Work is counted as on a CPU. Bytes are counted as on the kind of device in KeptCase, excluding the batch, the
// integers that positions and the head take from it, and the partial sums that kernels compute for blocks of
// rows.
#pragma once
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

struct DryBytes {
  KeptBytes kept;
  PassBytes passes;
};
// input: the output of the previous layer; empty for the first layer.
DryBytes dry_bytes(const LayerSpec& layer, const std::vector<BorderTensor>& input, const KeptCase& at);
LayerWork dry_work(const LayerSpec& layer, const std::vector<BorderTensor>& input, const WorkShape& shape);

// Sets work, kept, passes and flops_per_token of every layer whose `work` is not set. On the first call for a case,
// these functions run the layer and remember the result; layers of the same kind (layer_kind) share it. They may be
// called from any thread.
void add_costs_of_ops(ModelSpec& spec);

}  // namespace shardline

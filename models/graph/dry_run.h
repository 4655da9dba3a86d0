// Counts what a layer costs before anything is allocated: runs the layer's own code, forward and backward, on meta
// tensors of the true shapes, with a communicator that transfers nothing. The bytes that the layer allocates, frees and
// keeps are counted, and its ops record their work (core/model/work_notes.h).
//
// Work is that of a run on a CPU. Bytes are those of a run on the kind of device in KeptCase, without the batch,
// without the integers that positions and the head take from it, and without the partial sums that kernels make for
// blocks of rows.
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

// Sets work, kept, passes and flops_per_token of every layer whose `work` is not set. The functions run the layer on
// the first call for a case and remember the result; layers of the same kind (layer_kind) share it. They may be called
// from any thread.
void add_costs_of_ops(ModelSpec& spec);

}  // namespace shardline

// A layer run without numbers, to know what it costs before anything is allocated: its own code, forward and backward,
// on meta tensors of the true shapes, between T ranks that are not there. What it allocates, frees and keeps is
// counted; its ops note the work they do (core/model/work_notes.h).
//
// It is the run on a CPU that is told: its kernels and its attention. Without integers (ids, labels, positions).
#pragma once
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// input: of the layer, which the layer before hands to it; empty for the first one.
struct DryBytes {
  KeptBytes kept;
  PassBytes passes;
};
DryBytes dry_bytes(const LayerSpec& layer, const std::vector<BorderTensor>& input, const KeptCase& at);
LayerWork dry_work(const LayerSpec& layer, const std::vector<BorderTensor>& input, const WorkShape& shape);

// Gives layers that do not state what they cost (LayerSpec::work, kept, passes, flops_per_token) what dry runs find,
// when it is first asked for. Layers of one kind (layer_kind) share what was found. Callable from any thread.
void add_costs_of_ops(ModelSpec& spec);

}  // namespace shardline

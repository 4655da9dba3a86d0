// What one microbatch keeps and uses in each layer of a layout: as counted by our layers or, for other programs
// (Software::own_ops is false), as in Korthikanti et al. 2022 (arXiv 2205.05198, table 2).
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"
#include "pipeline/activations/activation_bytes.h"

namespace shardline {

// The bytes by layer, for a full microbatch on rank t of T.
std::vector<LayerBytes> layer_bytes(const Workload& workload, const Layout& layout, int t);
LayerBytes layer_bytes(const Workload& workload, const Layout& layout, int t, size_t layer);

// What a layer keeps between its forward and its backward in this layout: only its input if the whole layer is
// recomputed.
int64_t kept_bytes(const Workload& workload, const Layout& layout, size_t layer, const LayerBytes& bytes);
// The part of kept_bytes that is moved to the host if the schedule leaves time for it.
int64_t moved_bytes(const Workload& workload, const Layout& layout, size_t layer, const LayerBytes& bytes);

}  // namespace shardline

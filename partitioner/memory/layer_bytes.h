// What one microbatch keeps and uses in each layer of a layout: as the layers of this engine state it, or, for the
// engines of publications (Software::own_ops), as Korthikanti et al. 2022 (arXiv 2205.05198, table 2) count it.
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"
#include "pipeline/activations/activation_bytes.h"

namespace shardline {

// By layer, of a full microbatch on rank t of T.
std::vector<LayerBytes> layer_bytes(const Workload& workload, const Layout& layout, int t);
LayerBytes layer_bytes(const Workload& workload, const Layout& layout, int t, size_t layer);

// What a layer keeps between its forward and its backward in this layout: its input where it is recomputed as a whole.
int64_t kept_bytes(const Layout& layout, size_t layer, const LayerBytes& bytes);
// Its part that waits on the host, where the schedule gives it the time.
int64_t moved_bytes(const Layout& layout, size_t layer, const LayerBytes& bytes);

}  // namespace shardline

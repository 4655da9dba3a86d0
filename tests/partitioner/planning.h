// A workload and machines as most tests of the planner use them.
#pragma once
#include "partitioner/search/planned_layout.h"
#include "partitioner/search/search.h"

namespace shardline {

using What = Recompute::What;

struct Planning {
  Workload workload;
  Machines machines;
};

inline MeshSpans spans_of(const Planning& planning, const Layout& layout) {
  return mesh_spans(layout.mesh(), planning.machines.cluster.devices_per_node, layout.sharding.degree);
}
inline std::vector<LayerPrice> prices_of(const Planning& planning, const Layout& layout) {
  return layer_prices(planning.workload, planning.machines, layout, spans_of(planning, layout));
}
inline StepEstimate estimate_step(const Planning& planning, const Layout& layout) {
  return estimate_step(planning.workload, planning.machines, layout);
}
inline PlannedLayout plan_layout(const Planning& planning, const Layout& layout) {
  return plan_layout(planning.workload, planning.machines, layout);
}
inline SearchResult search(const Planning& planning, const SearchSpace& space) {
  return search(planning.workload, planning.machines, space, Ranking::time);
}

// Sharding (ZeRO) over `degree` replicas.
inline Sharding zero(int stage, int degree) {
  return {.level = static_cast<Sharding::Level>(stage), .degree = stage == 0 ? 1 : degree};
}

}  // namespace shardline

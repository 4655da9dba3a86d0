#include "partitioner/cost/spans.h"

#include <functional>
#include <set>

namespace shardline {
namespace {

// The span of the group {member(base, i)} that covers the most nodes.
GroupSpan span(const Mesh& mesh, int devices_per_node, Group group, int size,
               const std::function<Coordinates(Coordinates, int)>& member) {
  size_t most = 1;
  for (const int d : {0, mesh.d() - 1})
    for (const int p : {0, mesh.p() - 1})
      for (const int t : {0, mesh.t() - 1}) {
        std::set<int> nodes;
        for (int i = 0; i < size; ++i) nodes.insert(mesh.rank(member({d, p, t}, i)) / devices_per_node);
        most = std::max(most, nodes.size());
      }
  const int nodes = most;
  return {size, (size + nodes - 1) / nodes, group};
}

}  // namespace

MeshSpans mesh_spans(const Mesh& mesh, int devices_per_node, int shards) {
  const auto of = [&](Group group, int size, const auto& member) {
    return span(mesh, devices_per_node, group, size, member);
  };
  MeshSpans spans;
  spans.tensor = of(Group::tp, mesh.t(), [](Coordinates at, int i) { return Coordinates{at.d, at.p, i}; });
  spans.replicas = of(Group::rdp, mesh.d(), [](Coordinates at, int i) { return Coordinates{i, at.p, at.t}; });
  spans.holders = of(Group::dp, mesh.d() * mesh.t(), [&](Coordinates at, int i) {
    return Coordinates{i / mesh.t(), at.p, i % mesh.t()};
  });
  spans.shards = of(Group::rdp, shards, [&](Coordinates at, int i) {
    return Coordinates{mesh.replica({mesh.shared(at.d, shards).copy, i}, shards), at.p, at.t};
  });
  spans.shard_copies = of(Group::rdp, mesh.copies(shards), [&](Coordinates at, int i) {
    return Coordinates{mesh.replica({i, mesh.shared(at.d, shards).part}, shards), at.p, at.t};
  });
  const size_t stages = mesh.p();
  spans.near.assign(stages, std::vector<bool>(stages, true));
  for (int d = 0; d < mesh.d(); ++d)
    for (int t = 0; t < mesh.t(); ++t) {
      std::vector<int> node;
      for (int p = 0; p < mesh.p(); ++p) node.push_back(mesh.rank({d, p, t}) / devices_per_node);
      for (size_t a = 0; a < stages; ++a)
        for (size_t b = 0; b < stages; ++b)
          if (node[a] != node[b]) spans.near[a][b] = false;
    }
  return spans;
}

}  // namespace shardline

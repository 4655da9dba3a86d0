// How the groups of a mesh are spread over nodes.
#pragma once
#include "core/model/mesh.h"
#include "partitioner/cost/pricing.h"

namespace shardline {

struct MeshSpans {
  GroupSpan tensor, replicas;
  GroupSpan holders;                    // the tensor-parallel ranks of all replicas of a stage
  GroupSpan shards;                     // the ranks of a sharding group ...
  GroupSpan shard_copies;               // ... and the ranks that hold the same shard in these groups
  std::vector<std::vector<bool>> near;  // near[a][b]: every rank of stage a is on the same node as its peer in stage b
  bool operator==(const MeshSpans&) const = default;
};

// shards: the number of ranks that share one copy, a divisor of D.
MeshSpans mesh_spans(const Mesh& mesh, int devices_per_node, int shards);

}  // namespace shardline

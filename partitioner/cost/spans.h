// How the groups of a mesh lie over the nodes. Asks the mesh for every rank.
#pragma once
#include "core/model/mesh.h"
#include "partitioner/cost/pricing.h"

namespace shardline {

struct MeshSpans {
  GroupSpan tensor, replicas;
  GroupSpan holders;                    // of a stage: tensor-parallel ranks of all replicas
  GroupSpan shards;                     // the first ranks of a sharding group ...
  GroupSpan shard_copies;               // ... and the holders of equal shards in all of them
  std::vector<std::vector<bool>> near;  // near[a][b]: all ranks of stage a have their peer of stage b on their node
};

// shards: ranks that share one copy, a divisor of D.
MeshSpans mesh_spans(const Mesh& mesh, int devices_per_node, int shards);

}  // namespace shardline

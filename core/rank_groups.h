// One rank's place in the mesh and its communicators.
#pragma once
#include "core/communicator.h"
#include "core/mesh.h"

namespace shardline {

struct RankGroups {
  Mesh mesh;
  int rank = 0;
  Coordinates at;
  CommunicatorPtr world, pp, tp, rdp, dp, mp;  // see Group in mesh.h
};

// Collective over `world`, whose size is the mesh's.
RankGroups make_rank_groups(const Mesh& mesh, const CommunicatorPtr& world);

}  // namespace shardline

// One rank's place in the mesh and its communicators.
#pragma once
#include "core/comm/communicator.h"
#include "core/model/mesh.h"

namespace shardline {

struct RankGroups {
  Mesh mesh;
  int rank = 0;
  Coordinates coordinates;
  CommunicatorPtr world, mp;                      // carry host values (see Group in mesh.h)
  CommunicatorPtr device_world, pp, tp, rdp, dp;  // carry tensors of the run's device
  std::vector<int> host_of = {};                  // by world rank, see host_grid(); empty: all on one host
};

// Collective over both communicators, each of which has as many ranks as the mesh. They may be the same communicator,
// as on CPUs or if `mpi` also carries device tensors.
RankGroups make_rank_groups(const Mesh& mesh, const CommunicatorPtr& world, const CommunicatorPtr& device_world);

}  // namespace shardline

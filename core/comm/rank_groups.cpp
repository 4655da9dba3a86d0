#include "core/comm/rank_groups.h"

#include "core/error.h"

namespace shardline {

RankGroups make_rank_groups(const Mesh& mesh, const CommunicatorPtr& world, const CommunicatorPtr& device_world) {
  SL_ASSERT(mesh.size() == world->size() && mesh.size() == device_world->size(), "a mesh of ", mesh.size(), " over ",
            world->size(), " ranks");
  const int rank = world->rank();
  const auto split = [&](Communicator& whole, Group group) {
    return whole.split(mesh.members(group, rank).front(), to_string(group));
  };
  RankGroups groups{
      .mesh = mesh, .rank = rank, .coordinates = mesh.at(rank), .world = world, .device_world = device_world};
  groups.mp = split(*world, Group::mp);
  groups.pp = split(*device_world, Group::pp);
  groups.tp = split(*device_world, Group::tp);
  groups.rdp = split(*device_world, Group::rdp);
  groups.dp = split(*device_world, Group::dp);
  return groups;
}

}  // namespace shardline

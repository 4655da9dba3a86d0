#include "core/rank_groups.h"

#include "core/error.h"

namespace shardline {

RankGroups make_rank_groups(const Mesh& mesh, const CommunicatorPtr& world) {
  SL_ASSERT(mesh.size() == world->size(), "a mesh of ", mesh.size(), " over ", world->size(), " ranks");
  const int rank = world->rank();
  const auto split = [&](Group group) {
    return world->split(mesh.members(group, rank).front(), to_string(group));
  };
  RankGroups groups{.mesh = mesh, .rank = rank, .at = mesh.at(rank), .world = world, .pp = {}, .tp = {}, .rdp = {},
                    .dp = {}, .mp = {}};
  groups.pp = split(Group::pp);
  groups.tp = split(Group::tp);
  groups.rdp = split(Group::rdp);
  groups.dp = split(Group::dp);
  groups.mp = split(Group::mp);
  return groups;
}

}  // namespace shardline

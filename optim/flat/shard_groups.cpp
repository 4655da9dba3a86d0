#include "optim/flat/shard_groups.h"

#include "core/comm/hierarchical_gather.h"
#include "core/device/accelerator.h"

namespace shardline {

ShardGroups::ShardGroups(const RankGroups& groups, const Sharding& sharding, at::Device device)
    : groups_(groups), sharding_(sharding) {
  if (sharding.level == Sharding::Level::none) return;
  if (groups.mesh.copies(sharding.degree) == 1) {
    shards_ = groups.rdp;
    shards_of_partial_ = groups.dp;
  } else {
    const SharePlace place = groups.mesh.shared(groups.coordinates.d, sharding.degree);
    shards_ = groups.rdp->split(place.copy, "shards");
    shards_of_partial_ = groups.dp->split(place.copy, "shards and tp");
    shard_replicas_ = groups.rdp->split(place.part, "replicas of a shard");
  }
  // NCCL knows the hosts itself, and its communicators carry no host values.
  if (!sharding.hierarchical_gather || groups.host_of.empty() || is_accelerator(device)) return;
  const int host = groups.host_of[groups.rank];
  shards_ = with_hierarchical_gather(shards_, host);
  shards_of_partial_ = with_hierarchical_gather(shards_of_partial_, host);
}

CommunicatorPtr ShardGroups::shards_of(const Segment& segment) const {
  if (segment.shards == 1) return nullptr;
  return segment.sharing == Sharing::partial ? shards_of_partial_ : shards_;
}

CommunicatorPtr ShardGroups::replicas_of(const Segment& segment) const {
  if (segment.shards > 1) return shard_replicas_;
  const auto& all = segment.sharing == Sharing::partial ? groups_.dp : groups_.rdp;
  return all->size() > 1 ? all : nullptr;
}

Range ShardGroups::shard(const Segment& segment) const {
  const int64_t length = segment.shard_length();
  return {segment.shards > 1 ? shards_of(segment)->rank() * length : 0, length};
}

bool ShardGroups::is_dealt_over_t(const Segment& segment) const {
  return segment.sharing == Sharing::split || (segment.sharing == Sharing::partial && segment.shards > 1);
}

bool ShardGroups::enters_sums(const Segment& segment) const {
  const bool first_of_t = is_dealt_over_t(segment) || groups_.coordinates.t == 0;
  const bool first_of_shards =
      segment.shards > 1 || groups_.mesh.shared(groups_.coordinates.d, sharding_.degree).part == 0;
  return first_of_t && first_of_shards;
}

Range ShardGroups::counted_part(const Segment& segment) const {
  if (!is_dealt_over_t(segment) && groups_.coordinates.t != 0) return {};
  const int degree = segment.shards > 1 ? sharding_.degree : 1;
  const Range units = split_range(segment.shard_length() / FlatLayout::kAlignment, groups_.mesh.copies(degree),
                                  groups_.mesh.shared(groups_.coordinates.d, degree).copy);
  return {units.begin * FlatLayout::kAlignment, units.length * FlatLayout::kAlignment};
}

}  // namespace shardline

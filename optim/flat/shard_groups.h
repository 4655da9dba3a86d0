// Which ranks of a stage the segments of its flat buffers are dealt to, and which part of them this rank stands for.
#pragma once
#include "core/comm/rank_groups.h"
#include "optim/flat/flat_layout.h"

namespace shardline {

class ShardGroups {
 public:
  // Collective over groups.rdp and groups.dp. device: of the values.
  ShardGroups(const RankGroups& groups, const Sharding& sharding, at::Device device);

  // The ranks that the segment is dealt to, in order; null where it is not sharded.
  CommunicatorPtr shards_of(const Segment& segment) const;
  // Those that hold the same elements and add other samples to their gradients; null for none.
  CommunicatorPtr replicas_of(const Segment& segment) const;
  // Those among which the parts of the stage's trained parameters are dealt out.
  CommunicatorPtr part_holders() const { return shards_of_partial_ ? shards_of_partial_ : groups_.tp; }

  // The elements of the segment that are this rank's shard.
  Range shard(const Segment& segment) const;
  // Whether this rank's shard enters sums over part_holders(): of its copies there, one does.
  bool enters_sums(const Segment& segment) const;
  // The part of this rank's shard that it counts for the whole world: the ranks that hold a shard share it out, so that
  // a sum has the same bits for any number of them (optim/update/gradient_norm.h).
  Range counted_part(const Segment& segment) const;

 private:
  bool is_dealt_over_t(const Segment& segment) const;

  RankGroups groups_;
  Sharding sharding_;
  CommunicatorPtr shards_, shards_of_partial_;  // null without sharding
  CommunicatorPtr shard_replicas_;              // that hold the same shard; null where there is one of each
};

}  // namespace shardline

// Which ranks of a stage share a segment of its flat buffers, and which part this rank has.
#pragma once
#include "core/comm/rank_groups.h"
#include "optim/flat/flat_layout.h"

namespace shardline {

class ShardGroups {
 public:
  // Collective over groups.rdp and groups.dp. device: the device of the values.
  ShardGroups(const RankGroups& groups, const Sharding& sharding, at::Device device);

  // The ranks that share the segment, in order; null if the segment is not sharded.
  CommunicatorPtr shards_of(const Segment& segment) const;
  // The ranks that hold the same elements and contribute gradients of other samples; null if there are none.
  CommunicatorPtr replicas_of(const Segment& segment) const;
  // The ranks that share the stage's trained parameters.
  CommunicatorPtr part_holders() const { return shards_of_partial_ ? shards_of_partial_ : groups_.tp; }

  // The range of the segment in this rank's shard.
  Range shard(const Segment& segment) const;
  // Whether this rank's shard counts in sums over part_holders(): exactly one copy of each shard does.
  bool enters_sums(const Segment& segment) const;
  // The part of this rank's shard that it counts for the whole world: ranks that hold the same shard divide it among
  // themselves, so a sum has the same bits for any number of them (optim/update/gradient_norm.h).
  Range counted_part(const Segment& segment) const;

 private:
  bool is_dealt_over_t(const Segment& segment) const;

  RankGroups groups_;
  Sharding sharding_;
  CommunicatorPtr shards_, shards_of_partial_;  // null without sharding
  CommunicatorPtr shard_replicas_;              // the ranks that hold the same shard; null if there are no others
};

}  // namespace shardline

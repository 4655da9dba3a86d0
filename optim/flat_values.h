// The values of one segment on one rank. In Sharding::Stage::weights a sharded segment is only its own shard between
// passes and whole during them; otherwise it is always whole, and a sharded one is made whole again after an update.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/communicator.h"
#include "optim/flat_layout.h"

namespace shardline {

class FlatValues {
 public:
  // shards: the ranks that the segment is dealt to, in order; null where segment.shards is 1. Values are zero.
  FlatValues(const Segment& segment, Sharding::Stage stage, CommunicatorPtr shards, const at::TensorOptions& options);

  const at::Tensor& whole() const { return whole_; }  // [length]; the memory behind it may come and go
  const at::Tensor& own() const { return own_; }      // [shard_length]: this rank's shard, always there
  bool is_gathered() const { return gathered_; }      // for passes, and dropped behind them

  // For passes: all ranks of the shards call these in one order.
  void start_gathering();  // nothing where they are whole or on their way
  void wait_until_whole();
  void drop();
  void publish();  // own values have changed: whole ones are on their way to those that keep them

  // For filling them: whole() has memory from begin_filling to end_filling, which keeps the own part.
  void begin_filling();
  void end_filling();

 private:
  Segment segment_;
  CommunicatorPtr shards_;
  bool gathered_;
  at::Tensor whole_, own_;
  WorkPtr gathering_;
};

}  // namespace shardline

// The values of one segment on one rank. In Sharding::Level::weights a sharded segment is only its own shard between
// passes and whole during them; otherwise it is always whole, and a sharded one is made whole again after an update.
//
// Values of half precision that are trained have an fp32 master (Micikevicius et al. 2018, arXiv 1710.03740): of the
// rank's shard only, counted with the optimizer's states. Passes see the masters' rounded values.
//
// With a link to the host, trained values are there, whatever their type (ZeRO-Offload: Ren et al. 2021, arXiv
// 2101.06840). Half precision is rounded on the host, so that no more travels than passes see.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "core/comm/communicator.h"
#include "optim/flat/flat_layout.h"
#include "optim/flat/host_link.h"

namespace shardline {

class FlatValues {
 public:
  // shards: the ranks that the segment is dealt to, in order; null where segment.shards is 1. options: of the values
  // that passes see. trained: they will be; host: there, unless it is null. Values are zero.
  FlatValues(const Segment& segment, Sharding::Level level, CommunicatorPtr shards, const at::TensorOptions& options,
             bool trained, HostLinkPtr host = nullptr);

  const at::Tensor& whole() const { return whole_; }  // [length], for passes; its memory may come and go
  const at::Tensor& own() const { return own_; }      // [shard_length]: this rank's shard as it is trained
  bool is_gathered() const { return gathered_; }      // for passes, and dropped after them

  // For passes: all ranks of the shards call these in one order.
  void start_gathering();  // nothing where they are whole or on their way
  void wait_until_whole();
  void drop();
  void publish();        // own values have changed: whole ones are on their way to those that keep them
  void publish_ahead();  // the same, while others still change; the next publish() then finds nothing to do

  // To fill them: [length], in the type and where they are trained, which end_filling takes over.
  at::Tensor begin_filling();
  void end_filling();

  // Whole values as and where they are trained, for inspection. Collective over the shards; `await` waits for the
  // others.
  at::Tensor gather(const std::function<void(Work&)>& await);

 private:
  bool has_master() const { return !own_.is_alias_of(part_); }
  void start_publishing();
  void wait_until_sent();

  Segment segment_;
  CommunicatorPtr shards_;
  HostLinkPtr host_;  // null: trained values are on the device
  bool gathered_;
  at::Tensor whole_;
  at::Tensor part_;     // [shard_length]: the own shard as passes see it; of whole_ where that stays
  at::Tensor own_;      // the master, else part_
  at::Tensor rounded_;  // own_ on the host as passes see it, where that is another type
  at::Tensor filling_;  // from begin_filling to end_filling
  HostCopyPtr sending_;
  WorkPtr gathering_;
  bool published_ = false;  // ahead
};

}  // namespace shardline

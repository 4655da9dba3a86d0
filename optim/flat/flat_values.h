// The values of one segment on one rank. With Sharding::Level::weights, a rank holds the whole segment only during
// passes, and its own shard between them; otherwise it always holds the whole segment, and gathers a sharded one after
// each update.
//
// In training, values in half precision have an fp32 master copy (Micikevicius et al. 2018, arXiv 1710.03740), which
// covers only the rank's shard and counts as optimizer state. Frozen values have one, too, because the model is saved
// as it was loaded. Passes use the rounded masters.
//
// With a link to the host, trained values of any type are on the host, and so are the masters of frozen ones
// (ZeRO-Offload: Ren et al. 2021, arXiv 2101.06840). Half-precision values are rounded on the host, so that no more
// bytes are copied than passes use.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "core/comm/communicator.h"
#include "optim/flat/flat_layout.h"
#include "optim/flat/host_link.h"

namespace shardline {

class FlatValues {
 public:
  // shards: the ranks that share the segment, in order; null if segment.shards is 1. options: dtype and device of the
  // values in passes. trains: whether the run trains (the segment says whether it trains these values). host: the link
  // to the host that holds trained values; null: they are on the device. All values are initially zero.
  FlatValues(const Segment& segment, Sharding::Level level, CommunicatorPtr shards, const at::TensorOptions& options,
             bool trains, HostLinkPtr host = nullptr);

  const at::Tensor& whole() const { return whole_; }  // [length], for passes; its memory may be freed in between
  const at::Tensor& own() const { return own_; }      // [shard_length]: this rank's shard of the trained values
  // [shard_length]: own() rounded for passes, if an update on the device may write it along with own(); else undefined.
  at::Tensor rounded() const { return !host_ && has_master() ? part_ : at::Tensor(); }
  void rounded_is_written() { rounds_ = false; }  // called by the update before publish()
  bool is_gathered() const { return gathered_; }  // true: gathered for passes and freed afterwards

  // For passes; all ranks of the shards call these in the same order.
  void start_gathering();  // does nothing if the values are whole or are being gathered
  void wait_until_whole();
  void drop();
  void publish();        // own values have changed: starts to gather them on ranks that keep whole values
  void publish_ahead();  // as above, while other segments still change; the next publish() then does nothing

  // For initial values: returns a tensor [length] with the trained values' type and device; end_filling stores it.
  at::Tensor begin_filling();
  void end_filling();

  // Returns whole values with the type and device of the trained values, for inspection. Collective over the shards;
  // `await` waits for the other ranks.
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
  at::Tensor part_;     // [shard_length]: this rank's shard in the type of passes; a view of whole_ if whole_ is kept
  at::Tensor own_;      // the master, or part_ if there is none
  at::Tensor rounded_;  // own_ on the host, rounded for passes, if they use another type
  at::Tensor filling_;  // from begin_filling to end_filling
  HostCopyPtr sending_;
  WorkPtr gathering_;
  bool published_ = false;  // by publish_ahead
  bool rounds_ = true;      // whether the next publish() rounds own()
};

}  // namespace shardline

// The gradients of one segment on one rank, at least fp32. From Sharding::Level::gradients on, a sharded segment keeps
// only its own shard: whole gradients live from open() to the end of their reduction, microbatch by microbatch. In
// other cases they are whole all the time, and reduced once a step.
//
// With a link to the host an update takes them from a copy there, which is made for every update; on the device they
// stay as they were reduced.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/comm/communicator.h"
#include "optim/flat/flat_layout.h"
#include "optim/flat/host_link.h"

namespace shardline {

class FlatGradients {
 public:
  // shards: as for FlatValues; replicas: the ranks that hold the same elements and add other samples, null for none.
  // host: null where updates run on the device.
  FlatGradients(const Segment& segment, Sharding::Level level, CommunicatorPtr shards, CommunicatorPtr replicas,
                at::TensorOptions options, HostLinkPtr host = nullptr);

  const Segment& segment() const { return segment_; }
  const at::Tensor& whole() const { return whole_; }  // [length], to be added to; the memory may come and go
  const at::Tensor& own() const { return own_; }      // [shard_length]: complete after the step's reduction
  bool reduces_microbatches() const { return microbatches_; }

  void zero();
  void open();                                  // from here whole() can be added to; may be called again
  WorkPtr reduce_microbatch(const char* what);  // starts it
  void take_reduced();                          // after it: keeps the shard, frees the whole
  WorkPtr reduce_step(const char* what);        // all microbatches are in; null where nothing is left to do

  // For an update of what they are gradients of: [shard_length], which it may change. Between the next two they must be
  // complete, and own() is left alone.
  const at::Tensor& for_update() const { return host_ ? on_host_ : own_; }
  void start_bringing();  // nothing without a host
  void wait_until_brought();

 private:
  Segment segment_;
  CommunicatorPtr shards_, replicas_;
  bool microbatches_;
  HostLinkPtr host_;
  at::Tensor whole_, own_, on_host_;
  HostCopyPtr bringing_;
  at::Tensor part_;  // what the reduction in progress brings
  bool open_ = false;
  bool fresh_ = true;  // nothing was taken in this step
};

}  // namespace shardline

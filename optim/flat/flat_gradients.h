// The gradients of one segment on one rank, at least fp32. From Sharding::Level::gradients on, a rank keeps only its
// own shard of a sharded segment: whole gradients exist, per microbatch, from open() to the end of their reduction.
// Otherwise whole gradients are kept and reduced once per step.
//
// With a link to the host, each update uses a new copy of the gradients there; the reduced gradients stay on the
// device.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/comm/communicator.h"
#include "optim/flat/flat_layout.h"
#include "optim/flat/host_link.h"

namespace shardline {

class FlatGradients {
 public:
  // shards: see FlatValues. replicas: the ranks that hold the same elements and contribute the gradients of other
  // samples; null if there are none. host: null if updates run on the device.
  FlatGradients(const Segment& segment, Sharding::Level level, CommunicatorPtr shards, CommunicatorPtr replicas,
                at::TensorOptions options, HostLinkPtr host = nullptr);

  const Segment& segment() const { return segment_; }
  const at::Tensor& whole() const { return whole_; }  // [length], to add to; its memory may be freed in between
  const at::Tensor& own() const { return own_; }      // [shard_length]: complete after the step's reduction
  bool reduces_microbatches() const { return microbatches_; }

  void zero();
  void open();                                  // after this, whole() may be added to; may be called again
  WorkPtr reduce_microbatch(const char* what);  // starts the reduction
  void take_reduced();                          // after the reduction: keeps the shard, frees the whole gradients
  WorkPtr reduce_step(const char* what);        // after all microbatches; null if nothing is left to do

  // The gradients for an update, [shard_length]; the update may change them. Between the next two calls the gradients
  // must be complete, and own() must not be changed.
  const at::Tensor& for_update() const { return host_ ? on_host_ : own_; }
  void start_bringing();  // does nothing without a link to the host
  void wait_until_brought();

 private:
  Segment segment_;
  CommunicatorPtr shards_, replicas_;
  bool microbatches_;
  HostLinkPtr host_;
  at::Tensor whole_, own_, on_host_;
  HostCopyPtr bringing_;
  at::Tensor part_;  // result of the reduction in progress
  bool open_ = false;
  bool fresh_ = true;  // take_reduced() was not called in this step
};

}  // namespace shardline

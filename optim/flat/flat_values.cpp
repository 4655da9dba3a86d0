#include "optim/flat/flat_values.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "core/memory/storage.h"

namespace shardline {

FlatValues::FlatValues(const Segment& segment, Sharding::Level level, CommunicatorPtr shards,
                       const at::TensorOptions& options, bool trains, HostLinkPtr host)
    : segment_(segment),
      shards_(std::move(shards)),
      gathered_(level == Sharding::Level::weights && segment.shards > 1) {
  const int64_t length = segment.shard_length();
  {
    const MemoryScope scope(MemoryClass::weights);
    if (gathered_) {
      whole_ = empty_of_storage(segment.length, options);
      part_ = at::zeros({length}, options);
    } else {
      whole_ = at::zeros({segment.length}, options);
      part_ = whole_.narrow(0, segment.shards == 1 ? 0 : shards_->rank() * length, length);
    }
  }
  const MemoryScope scope(MemoryClass::optimizer);
  const at::ScalarType exact = at::toOpMathType(whole_.scalar_type());
  const bool rounds = trains && exact != whole_.scalar_type(), trained = trains && segment.trainable;
  if (trained || rounds) host_ = std::move(host);
  if (!host_) {
    own_ = rounds ? at::zeros({length}, options.dtype(exact)) : part_;
  } else {
    own_ = host_->zeros(length, exact);
    if (rounds && trained) rounded_ = host_->zeros(length, whole_.scalar_type());
  }
}

void FlatValues::start_gathering() {
  if (!gathered_ || has_storage(whole_)) return;
  wait_until_sent();
  const MemoryScope scope(MemoryClass::weights);
  take_storage(whole_);
  gathering_ = shards_->all_gather(whole_, part_, {.what = "gather values"});
}

// The device waits; the host does not.
void FlatValues::wait_until_sent() {
  if (sending_) sending_->go_before();
  sending_.reset();
}

void FlatValues::wait_until_whole() {
  wait_until_sent();
  if (gathering_) gathering_->wait();
  gathering_.reset();
}

void FlatValues::drop() {
  if (!gathered_) return;
  wait_until_whole();
  drop_storage(whole_);
}

void FlatValues::publish() {
  if (!std::exchange(published_, false)) start_publishing();
}

void FlatValues::publish_ahead() {
  start_publishing();
  published_ = true;
}

void FlatValues::start_publishing() {
  if (segment_.length == 0) return;
  SL_ASSERT(!gathering_ && !sending_, "values are published twice");
  if (host_) {
    if (rounded_.defined()) rounded_.copy_(own_);
    sending_ = host_->to_device(part_, rounded_.defined() ? rounded_ : own_);
  } else if (has_master() && std::exchange(rounds_, true)) {
    part_.copy_(own_);
  }
  if (gathered_ || segment_.shards == 1) return;
  wait_until_sent();
  gathering_ = shards_->all_gather(whole_, part_, {.what = "gather updated values"});
}

at::Tensor FlatValues::begin_filling() {
  wait_until_whole();
  const MemoryScope scope(MemoryClass::weights);
  if (segment_.shards == 1)
    filling_ = own_;
  else if (gathered_ || has_master())
    filling_ = at::zeros({segment_.length}, own_.options());
  else
    filling_ = whole_;
  return filling_;
}

void FlatValues::end_filling() {
  if (segment_.shards > 1 && (gathered_ || has_master()))
    own_.copy_(filling_.narrow(0, shards_->rank() * own_.numel(), own_.numel()));
  if (has_master()) (gathered_ ? part_ : whole_).copy_(gathered_ ? own_ : filling_);
  filling_.reset();
}

at::Tensor FlatValues::gather(const std::function<void(Work&)>& await) {
  wait_until_whole();
  if (segment_.shards == 1) return own_;
  if (!gathered_ && !has_master()) return whole_;
  const MemoryScope scope(MemoryClass::weights);
  const auto all = at::empty({segment_.length}, whole_.options().dtype(own_.dtype()));
  const auto own = own_.to(all.device());
  if (segment_.length > 0) await(*shards_->all_gather(all, own, {.what = "gather values to look at"}));
  return all.to(own_.device());
}

}  // namespace shardline

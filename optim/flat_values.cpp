#include "optim/flat_values.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "core/caching_allocator.h"
#include "core/error.h"
#include "core/storage.h"

namespace shardline {

FlatValues::FlatValues(const Segment& segment, Sharding::Stage stage, CommunicatorPtr shards,
                       const at::TensorOptions& options, bool trained)
    : segment_(segment),
      shards_(std::move(shards)),
      gathered_(stage == Sharding::Stage::weights && segment.shards > 1) {
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
  own_ = trained && exact != whole_.scalar_type() ? at::zeros({length}, options.dtype(exact)) : part_;
}

void FlatValues::start_gathering() {
  if (!gathered_ || has_storage(whole_)) return;
  const MemoryScope scope(MemoryClass::weights);
  take_storage(whole_);
  gathering_ = shards_->all_gather(whole_, part_, {.what = "gather values"});
}

void FlatValues::wait_until_whole() {
  if (gathering_) gathering_->wait();
  gathering_.reset();
}

void FlatValues::drop() {
  if (!gathered_) return;
  wait_until_whole();
  drop_storage(whole_);
}

void FlatValues::publish() {
  if (segment_.length == 0) return;
  if (has_master()) part_.copy_(own_);
  if (gathered_ || segment_.shards == 1) return;
  SL_ASSERT(!gathering_, "values are published twice");
  gathering_ = shards_->all_gather(whole_, part_, {.what = "gather updated values"});
}

at::Tensor FlatValues::begin_filling() {
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

at::Tensor FlatValues::gather() {
  wait_until_whole();
  if (segment_.shards == 1) return own_;
  if (!gathered_ && !has_master()) return whole_;
  const MemoryScope scope(MemoryClass::weights);
  const auto all = at::empty({segment_.length}, own_.options());
  if (segment_.length > 0) shards_->all_gather(all, own_, {.what = "gather values to look at"})->wait();
  return all;
}

}  // namespace shardline

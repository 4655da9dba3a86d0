#include "optim/flat_values.h"

#include <ATen/ops/zeros.h>

#include "core/caching_allocator.h"
#include "core/error.h"
#include "core/storage.h"

namespace shardline {

FlatValues::FlatValues(const Segment& segment, Sharding::Stage stage, CommunicatorPtr shards,
                       const at::TensorOptions& options)
    : segment_(segment),
      shards_(std::move(shards)),
      gathered_(stage == Sharding::Stage::weights && segment.shards > 1) {
  const MemoryScope scope(MemoryClass::weights);
  const int64_t length = segment.shard_length();
  if (gathered_) {
    whole_ = empty_of_storage(segment.length, options);
    own_ = at::zeros({length}, options);
  } else {
    whole_ = at::zeros({segment.length}, options);
    own_ = whole_.narrow(0, segment.shards == 1 ? 0 : shards_->rank() * length, length);
  }
}

void FlatValues::start_gathering() {
  if (!gathered_ || has_storage(whole_)) return;
  begin_filling();
  gathering_ = shards_->all_gather(whole_, own_, {.what = "gather values"});
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
  if (gathered_ || segment_.shards == 1 || segment_.length == 0) return;
  SL_ASSERT(!gathering_, "values are published twice");
  gathering_ = shards_->all_gather(whole_, own_, {.what = "gather updated values"});
}

void FlatValues::begin_filling() {
  const MemoryScope scope(MemoryClass::weights);
  take_storage(whole_);
}

void FlatValues::end_filling() {
  if (gathered_) own_.copy_(whole_.narrow(0, shards_->rank() * own_.numel(), own_.numel()));
  drop();
}

}  // namespace shardline

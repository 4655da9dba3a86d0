#include "optim/flat/flat_gradients.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "core/memory/storage.h"

namespace shardline {

FlatGradients::FlatGradients(const Segment& segment, Sharding::Level level, CommunicatorPtr shards,
                             CommunicatorPtr replicas, at::TensorOptions options, HostLinkPtr host)
    : segment_(segment),
      shards_(std::move(shards)),
      replicas_(std::move(replicas)),
      microbatches_(level >= Sharding::Level::gradients && segment.shards > 1),
      host_(std::move(host)) {
  const MemoryScope scope(MemoryClass::gradients);
  options = options.dtype(at::toOpMathType(c10::typeMetaToScalarType(options.dtype())));
  const int64_t length = segment.shard_length();
  if (microbatches_) {
    whole_ = empty_of_storage(segment.length, options);
    own_ = at::zeros({length}, options);
  } else {
    whole_ = at::zeros({segment.length}, options);
    own_ = whole_.narrow(0, segment.shards == 1 ? 0 : shards_->rank() * length, length);
  }
  if (!host_) return;
  const MemoryScope with_states(MemoryClass::optimizer);
  on_host_ = host_->zeros(length, own_.scalar_type());
}

void FlatGradients::zero() {
  fresh_ = true;
  if (!microbatches_) whole_.zero_();
}

void FlatGradients::open() {
  if (!microbatches_ || segment_.length == 0 || open_) return;
  open_ = true;
  SL_ASSERT(!has_storage(whole_), "gradients are opened while the previous ones are being reduced");
  const MemoryScope scope(MemoryClass::gradients);
  take_storage(whole_);
  whole_.zero_();
}

WorkPtr FlatGradients::reduce_microbatch(const char* what) {
  open_ = false;
  const MemoryScope scope(MemoryClass::gradients);
  part_ = fresh_ ? own_ : at::empty({own_.numel()}, own_.options());
  return shards_->reduce_scatter(part_, whole_, {.what = what});
}

void FlatGradients::take_reduced() {
  if (!fresh_) own_.add_(part_);
  fresh_ = false;
  part_.reset();
  if (segment_.length > 0) drop_storage(whole_);
}

WorkPtr FlatGradients::reduce_step(const char* what) {
  if (segment_.length == 0) return nullptr;
  if (segment_.shards > 1 && !microbatches_) return shards_->reduce_scatter(own_, whole_, {.what = what});
  return replicas_ ? replicas_->all_reduce(own_, {.what = what}) : nullptr;
}

void FlatGradients::start_bringing() {
  if (!host_ || segment_.length == 0) return;
  SL_ASSERT(!bringing_, "gradients are brought to the host twice for one update");
  bringing_ = host_->to_host(on_host_, own_);
}

void FlatGradients::wait_until_brought() {
  SL_ASSERT(bringing_, "an update begins before start_bringing() was called for its gradients");
  bringing_->wait();
  bringing_.reset();
}

}  // namespace shardline

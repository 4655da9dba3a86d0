#include "core/memory/copy_streams.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>

namespace shardline {

CopyStreams::CopyStreams(at::Device device)
    : guard(device.type()),
      out(guard.getStreamFromGlobalPool(device, false)),
      back(guard.getStreamFromGlobalPool(device, false)) {}

void stream_waits_for(const c10::Stream& stream, const c10::Stream& other) {
  c10::Event event(other.device_type());
  event.record(other);
  event.block(stream);
}

at::Tensor pinned_tensor(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions(type).pinned_memory(true));
}

}  // namespace shardline

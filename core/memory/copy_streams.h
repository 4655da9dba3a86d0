// Copies between an accelerator and its host that overlap with the device's work. They use c10's device-neutral streams
// and events, so they need no CUDA header.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace shardline {

// Two streams of a device, one for each direction.
struct CopyStreams {
  c10::impl::VirtualGuardImpl guard;
  c10::Stream out, back;  // to the host, to the device

  explicit CopyStreams(at::Device device);
  c10::Stream current() const { return guard.getStream(out.device()); }
};

// Makes `stream` wait for the work queued on `other`.
void stream_waits_for(const c10::Stream& stream, const c10::Stream& other);

// An uninitialised tensor in pinned host memory, which the device accesses directly.
at::Tensor pinned_tensor(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace shardline

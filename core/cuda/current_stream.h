// The stream on which work for a tensor's device is queued.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/cuda/launch_log.h"

namespace shardline::cuda {

// This thread's current stream; null in host twins, whose tensors are not on a GPU.
inline Stream current_stream(const at::Tensor& t) {
  if (!t.is_cuda()) return nullptr;
  return static_cast<Stream>(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(t.device()).native_handle());
}

}  // namespace shardline::cuda

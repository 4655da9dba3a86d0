// Flat buffers on the host that correspond to those of a device: memory for them, and copies in both directions that
// overlap with the work of both. On CPUs, where tests use it, "there" is other memory of the same host.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

namespace shardline {

// A copy that was started. Dropping it does not end it.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  virtual void wait() = 0;       // this thread, until the copy is made
  virtual void go_before() = 0;  // work queued on the device's current stream from now on runs after the copy
};
using HostCopyPtr = std::shared_ptr<HostCopy>;

class HostLink {
 public:
  virtual ~HostLink() = default;
  virtual at::Tensor zeros(int64_t elements, at::ScalarType type) const = 0;  // on the host
  // Both start after all work queued on the device's current stream. Tensors have equal length and type; they live and
  // are left alone until the copy is made.
  virtual HostCopyPtr to_host(const at::Tensor& to, const at::Tensor& from) = 0;
  virtual HostCopyPtr to_device(const at::Tensor& to, const at::Tensor& from) = 0;
};
using HostLinkPtr = std::shared_ptr<HostLink>;

// Accelerators: pinned memory, and a stream for each direction. CPUs: a copy is made when it is started.
HostLinkPtr make_host_link(at::Device device);

}  // namespace shardline

// A link between a device and its host: host memory for flat buffers, and copies in both directions that overlap with
// the work of both. On CPUs, where only tests use it, the buffers are other memory of the same host.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

namespace shardline {

// A copy that was started. Destroying the object does not cancel the copy.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  virtual void wait() = 0;       // blocks this thread until the copy is complete
  virtual void go_before() = 0;  // later work on the device's current stream runs after the copy
};
using HostCopyPtr = std::shared_ptr<HostCopy>;

class HostLink {
 public:
  virtual ~HostLink() = default;
  virtual at::Tensor zeros(int64_t elements, at::ScalarType type) const = 0;  // on the host
  // Both copies start after all work queued on the device's current stream. The tensors must have equal length and
  // type. They must not be changed until the copy is complete, and the host tensor must exist until then.
  virtual HostCopyPtr to_host(const at::Tensor& to, const at::Tensor& from) = 0;
  virtual HostCopyPtr to_device(const at::Tensor& to, const at::Tensor& from) = 0;
};
using HostLinkPtr = std::shared_ptr<HostLink>;

// Accelerators use pinned memory and a stream for each direction. On CPUs a copy is complete as soon as it is started.
HostLinkPtr make_host_link(at::Device device);

}  // namespace shardline

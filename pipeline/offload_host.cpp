// Written against the device-neutral streams and events of c10, so that it needs no CUDA header.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/error.h"
#include "pipeline/offload.h"

namespace shardline {
namespace {

// The two copy streams of a device.
struct CopyStreams {
  c10::impl::VirtualGuardImpl guard;
  c10::Stream out, back;

  explicit CopyStreams(at::Device device)
      : guard(device.type()),
        out(guard.getStreamFromGlobalPool(device, false)),
        back(guard.getStreamFromGlobalPool(device, false)) {}
};

// Makes `stream` wait for what has been given to `other`.
void wait_for(const c10::Stream& stream, const c10::Stream& other) {
  c10::Event event(other.device_type());
  event.record(other);
  event.block(stream);
}

class AwayOnHost : public Away {
 public:
  AwayOnHost(std::shared_ptr<CopyStreams> streams, const at::Tensor& tensor)
      : streams_(std::move(streams)), options_(tensor.options().requires_grad(false)) {
    const at::Tensor dense = tensor.detach().contiguous();
    host_ = at::empty(dense.sizes(), options_.device(at::kCPU).pinned_memory(true));
    wait_for(streams_->out, streams_->guard.getStream(dense.device()));
    const c10::StreamGuard on(streams_->out);
    host_.copy_(dense, /*non_blocking=*/true);
    dense.record_stream(streams_->out);
  }

  int64_t fetch() override {
    SL_ASSERT(!tensor_.defined(), "an activation was fetched twice");
    tensor_ = at::empty(host_.sizes(), options_);
    wait_for(streams_->back, streams_->guard.getStream(tensor_.device()));
    wait_for(streams_->back, streams_->out);
    const c10::StreamGuard on(streams_->back);
    tensor_.copy_(host_, /*non_blocking=*/true);
    tensor_.record_stream(streams_->back);
    return static_cast<int64_t>(tensor_.nbytes());
  }

  at::Tensor take() override {
    SL_ASSERT(tensor_.defined(), "an activation was taken that was not fetched");
    wait_for(streams_->guard.getStream(tensor_.device()), streams_->back);
    return std::move(tensor_);
  }

 private:
  std::shared_ptr<CopyStreams> streams_;
  at::TensorOptions options_;
  at::Tensor host_, tensor_;
};

class HostSpace : public OffloadSpace {
 public:
  explicit HostSpace(at::Device device) : streams_(std::make_shared<CopyStreams>(device)) {}
  std::unique_ptr<Away> store(const at::Tensor& tensor) override {
    return std::make_unique<AwayOnHost>(streams_, tensor);
  }

 private:
  std::shared_ptr<CopyStreams> streams_;
};

}  // namespace

std::unique_ptr<OffloadSpace> offload_to_host(at::Device device) {
  return std::make_unique<HostSpace>(device);
}

}  // namespace shardline

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
  AwayOnHost(std::shared_ptr<CopyStreams> streams, const std::vector<at::Tensor>& tensors)
      : streams_(std::move(streams)), device_(streams_->out.device()) {
    wait_for(streams_->out, streams_->guard.getStream(device_));
    for (const auto& tensor : tensors) {
      const at::Tensor dense = tensor.detach().contiguous();
      host_.push_back(at::empty(dense.sizes(), dense.options().device(at::kCPU).pinned_memory(true)));
      const c10::StreamGuard on(streams_->out);
      host_.back().copy_(dense, /*non_blocking=*/true);
      dense.record_stream(streams_->out);
    }
  }

  int64_t fetch() override {
    SL_ASSERT(tensors_.empty(), "activations were fetched twice");
    int64_t bytes = 0;
    for (const auto& host : host_)
      tensors_.push_back(at::empty(host.sizes(), host.options().pinned_memory(false).device(device_)));
    wait_for(streams_->back, streams_->guard.getStream(device_));
    wait_for(streams_->back, streams_->out);
    const c10::StreamGuard on(streams_->back);
    for (size_t i = 0; i < host_.size(); ++i) {
      tensors_[i].copy_(host_[i], /*non_blocking=*/true);
      tensors_[i].record_stream(streams_->back);
      bytes += static_cast<int64_t>(host_[i].nbytes());
    }
    return bytes;
  }

  std::vector<at::Tensor> take() override {
    SL_ASSERT(tensors_.size() == host_.size(), "activations were taken that were not fetched");
    wait_for(streams_->guard.getStream(device_), streams_->back);
    return std::move(tensors_);
  }

 private:
  std::shared_ptr<CopyStreams> streams_;
  at::Device device_;
  std::vector<at::Tensor> host_, tensors_;
};

class HostSpace : public OffloadSpace {
 public:
  explicit HostSpace(at::Device device) : streams_(std::make_shared<CopyStreams>(device)) {}
  std::unique_ptr<Away> store(const std::vector<at::Tensor>& tensors) override {
    return std::make_unique<AwayOnHost>(streams_, tensors);
  }

 private:
  std::shared_ptr<CopyStreams> streams_;
};

}  // namespace

std::unique_ptr<OffloadSpace> offload_to_host(at::Device device) {
  return std::make_unique<HostSpace>(device);
}

}  // namespace shardline

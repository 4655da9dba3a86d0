#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "core/error.h"
#include "core/memory/copy_streams.h"
#include "pipeline/activations/offload.h"

namespace shardline {
namespace {

class AwayOnHost : public Away {
 public:
  AwayOnHost(std::shared_ptr<CopyStreams> streams, const std::vector<at::Tensor>& tensors)
      : streams_(std::move(streams)), device_(streams_->out.device()) {
    stream_waits_for(streams_->out, streams_->current());
    for (const auto& tensor : tensors) {
      const at::Tensor dense = tensor.detach().contiguous();
      host_.push_back(pinned_tensor(dense.sizes(), dense.scalar_type()));
      const c10::StreamGuard on(streams_->out);
      host_.back().copy_(dense, /*non_blocking=*/true);
      dense.record_stream(streams_->out);
    }
  }

  int64_t fetch() override {
    SL_ASSERT(tensors_.empty(), "activations were fetched twice");
    int64_t bytes = 0;
    for (const auto& host : host_) tensors_.push_back(at::empty(host.sizes(), host.options().device(device_)));
    stream_waits_for(streams_->back, streams_->current());
    stream_waits_for(streams_->back, streams_->out);
    const c10::StreamGuard on(streams_->back);
    for (size_t i = 0; i < host_.size(); ++i) {
      tensors_[i].copy_(host_[i], /*non_blocking=*/true);
      tensors_[i].record_stream(streams_->back);
      bytes += host_[i].nbytes();
    }
    return bytes;
  }

  std::vector<at::Tensor> take() override {
    SL_ASSERT(tensors_.size() == host_.size(), "activations were taken that were not fetched");
    stream_waits_for(streams_->current(), streams_->back);
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

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include <map>

#include "core/device/host_memory.h"
#include "core/error.h"
#include "core/memory/copy_streams.h"
#include "pipeline/activations/offload.h"

namespace shardline {
namespace {

// Memory is reused by size: microbatches and steps with fewer samples take the buffers of larger ones, as plans assume
// (activation_bytes.cpp). A buffer that was returned may still be the source of a copy to the
// device, for which the current stream, and so every later store, waits.
class HostMemory {
 public:
  // At least `bytes`.
  at::Tensor take(int64_t bytes) {
    if (const auto free = free_.lower_bound(bytes); free != free_.end()) return std::move(free_.extract(free).mapped());
    return locked_zeros(bytes, at::kByte);
  }
  void give_back(at::Tensor buffer) { free_.emplace(buffer.numel(), std::move(buffer)); }

 private:
  std::multimap<int64_t, at::Tensor> free_;  // by size
};

struct HostSide {
  explicit HostSide(at::Device device) : streams(device) {}
  CopyStreams streams;
  HostMemory memory;
};

class AwayOnHost : public Away {
 public:
  AwayOnHost(std::shared_ptr<HostSide> host, const std::vector<at::Tensor>& tensors) : host_(std::move(host)) {
    constexpr int64_t kAlignment = 64;
    std::vector<int64_t> offsets;
    int64_t bytes = 0;
    for (const auto& tensor : tensors) {
      offsets.push_back(bytes);
      bytes += (static_cast<int64_t>(tensor.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
    }
    buffer_ = host_->memory.take(bytes);
    const CopyStreams& streams = host_->streams;
    stream_waits_for(streams.out, streams.current());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor dense = tensors[i].detach().contiguous();
      const at::Tensor place = buffer_.narrow(0, offsets[i], static_cast<int64_t>(dense.nbytes()));
      stored_.push_back(place.view(dense.scalar_type()).view(dense.sizes()));
      const c10::StreamGuard on(streams.out);
      stored_.back().copy_(dense, /*non_blocking=*/true);
      dense.record_stream(streams.out);
    }
  }
  ~AwayOnHost() override { host_->memory.give_back(std::move(buffer_)); }

  int64_t fetch() override {
    SL_ASSERT(tensors_.empty(), "activations were fetched twice");
    const CopyStreams& streams = host_->streams;
    int64_t bytes = 0;
    for (const auto& stored : stored_)
      tensors_.push_back(at::empty(stored.sizes(), stored.options().device(streams.out.device())));
    stream_waits_for(streams.back, streams.current());
    stream_waits_for(streams.back, streams.out);
    const c10::StreamGuard on(streams.back);
    for (size_t i = 0; i < stored_.size(); ++i) {
      tensors_[i].copy_(stored_[i], /*non_blocking=*/true);
      tensors_[i].record_stream(streams.back);
      bytes += static_cast<int64_t>(stored_[i].nbytes());
    }
    return bytes;
  }

  std::vector<at::Tensor> take() override {
    SL_ASSERT(tensors_.size() == stored_.size(), "activations were taken that were not fetched");
    stream_waits_for(host_->streams.current(), host_->streams.back);
    return std::move(tensors_);
  }

 private:
  std::shared_ptr<HostSide> host_;
  at::Tensor buffer_;  // bytes
  std::vector<at::Tensor> stored_, tensors_;
};

class HostSpace : public OffloadSpace {
 public:
  explicit HostSpace(at::Device device) : host_(std::make_shared<HostSide>(device)) {}
  std::unique_ptr<Away> store(const std::vector<at::Tensor>& tensors) override {
    return std::make_unique<AwayOnHost>(host_, tensors);
  }

 private:
  std::shared_ptr<HostSide> host_;
};

}  // namespace

std::unique_ptr<OffloadSpace> offload_to_host(at::Device device) {
  return std::make_unique<HostSpace>(device);
}

}  // namespace shardline

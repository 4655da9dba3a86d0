#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <deque>
#include <map>
#include <utility>

#include "core/device/host_memory.h"
#include "core/error.h"
#include "core/memory/copy_streams.h"
#include "pipeline/activations/offload.h"

namespace shardline {
namespace {

// Memory is reused by size: microbatches and steps with fewer samples take the buffers of larger ones, as plans assume
// (activation_bytes.cpp). A returned buffer may still be the source of a copy to the device; the current stream, and
// thus every later store, waits for that copy.
class HostMemory {
 public:
  // Returns a buffer of at least `bytes`.
  at::Tensor take(int64_t bytes) {
    if (const auto free = free_.lower_bound(bytes); free != free_.end()) return std::move(free_.extract(free).mapped());
    return locked_zeros(bytes, at::kByte);
  }
  void give_back(at::Tensor buffer) { free_.emplace(buffer.numel(), std::move(buffer)); }

 private:
  std::multimap<int64_t, at::Tensor> free_;  // by size
};

// Tensors that are being copied to the host. Their memory is reused in the order of the current stream, which waits for
// the copy before they are released. record_stream would release it only when the host sees the end of the copy, which
// is late if the host is ahead of the device.
class Leaving {
 public:
  explicit Leaving(const CopyStreams& streams) : streams_(streams) {}
  ~Leaving() {  // only has work after a failed run
    for (const Copy& copy : copies_)
      for (const auto& tensor : copy.tensors) tensor.record_stream(streams_.out);
  }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

  void add(std::vector<at::Tensor> tensors) {
    Copy& copy = copies_.emplace_back(Copy{std::move(tensors), c10::Event(streams_.out.device_type())});
    copy.end.record(streams_.out);
  }
  // Releases the oldest stores until at most `kept` are left.
  void release(size_t kept) {
    for (; copies_.size() > kept; copies_.pop_front()) copies_.front().end.block(streams_.current());
  }
  int64_t bytes() const {
    int64_t bytes = 0;
    for (const Copy& copy : copies_)
      for (const auto& tensor : copy.tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    return bytes;
  }

 private:
  struct Copy {
    std::vector<at::Tensor> tensors;
    c10::Event end;
  };
  const CopyStreams& streams_;
  std::deque<Copy> copies_;
};

struct HostSide {
  explicit HostSide(at::Device device) : streams(device) {}
  CopyStreams streams;
  HostMemory memory;
  Leaving leaving{streams};
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
    host_->leaving.release(kLeavingStores - 1);
    std::vector<at::Tensor> dense;
    for (const auto& tensor : tensors) dense.push_back(tensor.detach().contiguous());
    stream_waits_for(streams.out, streams.current());
    const c10::StreamGuard on(streams.out);
    for (size_t i = 0; i < dense.size(); ++i) {
      const at::Tensor place = buffer_.narrow(0, offsets[i], static_cast<int64_t>(dense[i].nbytes()));
      stored_.push_back(place.view(dense[i].scalar_type()).view(dense[i].sizes()));
      stored_.back().copy_(dense[i], /*non_blocking=*/true);
    }
    host_->leaving.add(std::move(dense));
  }
  ~AwayOnHost() override {
    for (const auto& tensor : tensors_) tensor.record_stream(host_->streams.back);  // after a failed run
    host_->memory.give_back(std::move(buffer_));
  }

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
      bytes += static_cast<int64_t>(stored_[i].nbytes());
    }
    return bytes;
  }

  std::vector<at::Tensor> take() override {
    SL_ASSERT(tensors_.size() == stored_.size(), "activations were taken that had not been fetched");
    stream_waits_for(host_->streams.current(), host_->streams.back);  // so their memory may be reused on that stream
    return std::exchange(tensors_, {});
  }

 private:
  std::shared_ptr<HostSide> host_;
  at::Tensor buffer_;  // a tensor of bytes
  std::vector<at::Tensor> stored_, tensors_;
};

class HostSpace : public OffloadSpace {
 public:
  explicit HostSpace(at::Device device) : host_(std::make_shared<HostSide>(device)) {}
  std::unique_ptr<Away> store(const std::vector<at::Tensor>& tensors) override {
    return std::make_unique<AwayOnHost>(host_, tensors);
  }
  int64_t leaving_bytes() const override { return host_->leaving.bytes(); }
  void let_go() override { host_->leaving.release(0); }

 private:
  std::shared_ptr<HostSide> host_;
};

}  // namespace

std::unique_ptr<OffloadSpace> offload_to_host(at::Device device) {
  return std::make_unique<HostSpace>(device);
}

}  // namespace shardline

#include "optim/flat/host_link.h"

#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <chrono>
#include <thread>

#include "core/comm/timeouts.h"
#include "core/device/accelerator.h"
#include "core/device/host_memory.h"
#include "core/error.h"
#include "core/memory/copy_streams.h"

namespace shardline {
namespace {

constexpr std::chrono::microseconds kPoll(20);

class StreamCopy : public HostCopy {
 public:
  StreamCopy(std::shared_ptr<const CopyStreams> streams, const c10::Stream& stream)
      : streams_(std::move(streams)), made_(stream.device_type()) {
    made_.record(stream);
  }
  void wait() override {
    // The device's work before the copy may itself be waiting for other ranks.
    const TimeLimit limit = timeouts().collective;
    const HostWait because("gradients for an update on the host");
    for (const auto begin = std::chrono::steady_clock::now(); !made_.query(); std::this_thread::sleep_for(kPoll))
      if (std::chrono::steady_clock::now() - begin > limit.time)
        throw RunError(cat("rank ", current_rank(), ": a copy between ", streams_->out.device(),
                           " and its host has not ended after ", limit.time.count() / 1000.0,
                           " s; the work before it may be waiting for a rank that has ended", limit.advice()));
  }
  void go_before() override { made_.block(streams_->current()); }

 private:
  std::shared_ptr<const CopyStreams> streams_;
  c10::Event made_;
};

class StreamLink : public HostLink {
 public:
  explicit StreamLink(at::Device device) : streams_(std::make_shared<const CopyStreams>(device)) {}

  at::Tensor zeros(int64_t elements, at::ScalarType type) const override { return locked_zeros(elements, type); }
  HostCopyPtr to_host(const at::Tensor& to, const at::Tensor& from) override { return copy(to, from, streams_->out); }
  HostCopyPtr to_device(const at::Tensor& to, const at::Tensor& from) override {
    return copy(to, from, streams_->back);
  }

 private:
  HostCopyPtr copy(const at::Tensor& to, const at::Tensor& from, const c10::Stream& stream) {
    stream_waits_for(stream, streams_->current());
    const c10::StreamGuard on(stream);
    to.copy_(from, /*non_blocking=*/true);
    (is_accelerator(to) ? to : from).record_stream(stream);
    return std::make_shared<StreamCopy>(streams_, stream);
  }

  std::shared_ptr<const CopyStreams> streams_;
};

class MadeCopy : public HostCopy {
 public:
  void wait() override {}
  void go_before() override {}
};

class MemoryLink : public HostLink {
 public:
  at::Tensor zeros(int64_t elements, at::ScalarType type) const override { return at::zeros({elements}, type); }
  HostCopyPtr to_host(const at::Tensor& to, const at::Tensor& from) override { return copy(to, from); }
  HostCopyPtr to_device(const at::Tensor& to, const at::Tensor& from) override { return copy(to, from); }

 private:
  static HostCopyPtr copy(const at::Tensor& to, const at::Tensor& from) {
    to.copy_(from);
    return std::make_shared<MadeCopy>();
  }
};

}  // namespace

HostLinkPtr make_host_link(at::Device device) {
  if (is_accelerator(device)) return std::make_shared<StreamLink>(device);
  return std::make_shared<MemoryLink>();
}

}  // namespace shardline

// Carries CPU tensors over a communicator of device tensors, for tests that are written for CPUs.
#pragma once
#include <ATen/ops/empty_like.h>

#include <utility>

#include "core/comm/forwarding_communicator.h"

namespace shardline::testing {

class StagingCommunicator : public ForwardingCommunicator {
 public:
  StagingCommunicator(CommunicatorPtr inner, at::Device device)
      : ForwardingCommunicator(std::move(inner)), device_(device) {}

  WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options) override {
    const at::Tensor copy = tensor.to(device_);
    return back(inner().all_reduce(copy, options), copy, tensor);
  }
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    const at::Tensor result = at::empty_like(output, device_);
    return back(inner().reduce_scatter(result, input.to(device_), options), result, output);
  }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    const at::Tensor result = at::empty_like(output, device_);
    return back(inner().all_gather(result, input.to(device_), options), result, output);
  }
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    const at::Tensor from = input.to(device_);
    const at::Tensor result = output.is_alias_of(input) ? from : at::empty_like(output, device_);
    return back(inner().all_to_all(result, from, options), result, output);
  }
  WorkPtr broadcast(const at::Tensor& tensor, int root, const CommOptions& options) override {
    const at::Tensor copy = tensor.to(device_);
    return back(inner().broadcast(copy, root, options), copy, tensor);
  }
  WorkPtr send(const at::Tensor& tensor, int peer, const CommOptions& options) override {
    return inner().send(tensor.to(device_), peer, options);
  }
  WorkPtr recv(const at::Tensor& tensor, int peer, const CommOptions& options) override {
    const at::Tensor result = at::empty_like(tensor, device_);
    return back(inner().recv(result, peer, options), result, tensor);
  }
  CommunicatorPtr split(int color, const std::string& group) override {
    return std::make_shared<StagingCommunicator>(inner().split(color, group), device_);
  }

 private:
  struct Back : Work {
    Back(WorkPtr inner_work, at::Tensor on_device, at::Tensor on_host)
        : inner(std::move(inner_work)), from(std::move(on_device)), to(std::move(on_host)) {}
    bool poll() override { return inner->poll(); }
    void await(TimePoint) override {
      inner->wait();
      to.copy_(from);
    }
    WorkPtr inner;
    at::Tensor from, to;
  };
  static WorkPtr back(WorkPtr work, const at::Tensor& from, const at::Tensor& to) {
    return std::make_shared<Back>(std::move(work), from, to);
  }

  at::Device device_;
};

}  // namespace shardline::testing

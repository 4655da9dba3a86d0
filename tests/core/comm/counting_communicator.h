// A communicator that counts what its rank receives from others.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/forwarding_communicator.h"

namespace shardline::testing {

class CountingCommunicator : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  size_t received_bytes = 0;

  WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options) override {
    received_bytes += tensor.nbytes();
    return ForwardingCommunicator::all_reduce(tensor, options);
  }
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    received_bytes += output.nbytes();
    return ForwardingCommunicator::reduce_scatter(output, input, options);
  }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    received_bytes += output.nbytes() - input.nbytes();
    return ForwardingCommunicator::all_gather(output, input, options);
  }
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    received_bytes += output.nbytes();
    return ForwardingCommunicator::all_to_all(output, input, options);
  }
  WorkPtr broadcast(const at::Tensor& tensor, int root, const CommOptions& options) override {
    received_bytes += root == rank() ? 0 : tensor.nbytes();
    return ForwardingCommunicator::broadcast(tensor, root, options);
  }
  WorkPtr recv(const at::Tensor& tensor, int peer, const CommOptions& options) override {
    received_bytes += tensor.nbytes();
    return ForwardingCommunicator::recv(tensor, peer, options);
  }
};

}  // namespace shardline::testing

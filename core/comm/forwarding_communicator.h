// A communicator that forwards every call to another one: a base class for communicators that change only some calls.
// split() returns a group of the inner communicator; classes that also wrap groups override it.
#pragma once
#include <utility>

#include "core/comm/communicator.h"

namespace shardline {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(CommunicatorPtr inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options) override {
    return inner_->all_reduce(tensor, options);
  }
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    return inner_->reduce_scatter(output, input, options);
  }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    return inner_->all_gather(output, input, options);
  }
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    return inner_->all_to_all(output, input, options);
  }
  WorkPtr broadcast(const at::Tensor& tensor, int root, const CommOptions& options) override {
    return inner_->broadcast(tensor, root, options);
  }
  WorkPtr send(const at::Tensor& tensor, int peer, const CommOptions& options) override {
    return inner_->send(tensor, peer, options);
  }
  WorkPtr recv(const at::Tensor& tensor, int peer, const CommOptions& options) override {
    return inner_->recv(tensor, peer, options);
  }
  void barrier(const CommOptions& options) override { inner_->barrier(options); }
  CommunicatorPtr split(int color, const std::string& group) override { return inner_->split(color, group); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 protected:
  Communicator& inner() { return *inner_; }

 private:
  CommunicatorPtr inner_;
};

}  // namespace shardline

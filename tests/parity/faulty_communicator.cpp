#include "tests/parity/faulty_communicator.h"

#include <ATen/core/Tensor.h>

#include "core/communicator_base.h"

namespace shardline::parity {
namespace {

class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(CommunicatorPtr inner, DamageRule rule) : inner_(std::move(inner)), rule_(std::move(rule)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }

  WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options) override {
    const Damage damage = judge(options);
    if (damage == Damage::drop) return finished_work();
    const WorkPtr work = inner_->all_reduce(tensor, options);
    if (damage == Damage::leave) return work;
    work->wait();
    if (damage == Damage::repeat) return inner_->all_reduce(tensor, options);
    tensor.div_(size());
    return finished_work();
  }

  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    if (judge(options) == Damage::leave) return inner_->reduce_scatter(output, input, options);
    output.copy_(input.chunk(size())[static_cast<size_t>(rank())]);
    return finished_work();
  }

  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    if (judge(options) == Damage::leave) return inner_->all_gather(output, input, options);
    const auto mine = input.clone();  // it may be a part of the output
    output.zero_();
    output.view(-1).narrow(0, rank() * input.numel(), input.numel()).copy_(mine.view(-1));
    return finished_work();
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
  CommunicatorPtr split(int color, const std::string& group) override {
    return std::make_shared<FaultyCommunicator>(inner_->split(color, group), rule_);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  Damage judge(const CommOptions& options) { return rule_({.group = name(), .what = options.what}); }

  CommunicatorPtr inner_;
  DamageRule rule_;
};

}  // namespace

CommunicatorPtr damaged(const CommunicatorPtr& world, const DamageRule& rule) {
  return std::make_shared<FaultyCommunicator>(world, rule);
}

}  // namespace shardline::parity

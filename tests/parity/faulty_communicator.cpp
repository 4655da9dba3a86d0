#include "tests/parity/faulty_communicator.h"

#include <ATen/core/Tensor.h>

#include "core/comm/communicator_base.h"
#include "core/comm/forwarding_communicator.h"

namespace shardline::parity {
namespace {

class FaultyCommunicator : public ForwardingCommunicator {
 public:
  FaultyCommunicator(CommunicatorPtr inner, DamageRule rule)
      : ForwardingCommunicator(std::move(inner)), rule_(std::move(rule)) {}

  WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options) override {
    const Damage damage = judge(options);
    if (damage == Damage::drop) return finished_work();
    const WorkPtr work = inner().all_reduce(tensor, options);
    if (damage == Damage::leave) return work;
    work->wait();
    if (damage == Damage::repeat) return inner().all_reduce(tensor, options);
    tensor.div_(size());
    return finished_work();
  }

  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    if (judge(options) == Damage::leave) return inner().reduce_scatter(output, input, options);
    output.copy_(input.chunk(size())[rank()]);
    return finished_work();
  }

  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) override {
    if (judge(options) == Damage::leave) return inner().all_gather(output, input, options);
    const auto mine = input.clone();  // it may be a part of the output
    output.zero_();
    output.view(-1).narrow(0, rank() * input.numel(), input.numel()).copy_(mine.view(-1));
    return finished_work();
  }

  CommunicatorPtr split(int color, const std::string& group) override {
    return std::make_shared<FaultyCommunicator>(inner().split(color, group), rule_);
  }

 private:
  Damage judge(const CommOptions& options) { return rule_({.group = name(), .what = options.what}); }

  DamageRule rule_;
};

}  // namespace

CommunicatorPtr damaged(const CommunicatorPtr& world, const DamageRule& rule) {
  return std::make_shared<FaultyCommunicator>(world, rule);
}

}  // namespace shardline::parity

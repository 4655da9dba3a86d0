#include "core/comm/local_communicator.h"

#include <ATen/ops/clone.h>

#include <deque>

#include "core/comm/communicator_base.h"
#include "core/flight/flight_ring.h"

namespace shardline {
namespace {

class LocalCommunicator : public CommunicatorBase {
 public:
  explicit LocalCommunicator(CommIdentity identity) : CommunicatorBase(std::move(identity)) {}

  std::shared_ptr<Communicator> split(int, const std::string& group_name) override {
    return std::make_shared<LocalCommunicator>(identity_of_part({0}, group_name));
  }

  void abort(const std::string& reason) override { aborted_ = reason; }

 protected:
  WorkPtr start(CommRequest request) override {
    if (!aborted_.empty()) throw identity()->error(request, aborted_);
    if (request.op == CommOp::send) {
      messages_.push_back(request.input.detach().clone());
    } else if (request.op == CommOp::recv) {
      if (messages_.empty()) throw identity()->error(request, "the only rank has not sent itself anything");
      const at::Tensor message = messages_.front();
      messages_.pop_front();
      CommRequest sent = request;
      sent.output = message;
      if (sent.signature() != request.signature())
        throw identity()->error(request,
                                cat("the rank sent itself ", sent.signature(), ", but receives ", request.signature()));
      move(request.output, message);
    } else if (request.op != CommOp::barrier) {
      move(request.output, request.input);
    }
    flight_ring().end(request.ticket, FlightState::done);
    return finished_work();
  }

 private:
  static void move(const at::Tensor& output, const at::Tensor& input) {
    if (output.const_data_ptr() != input.const_data_ptr()) output.detach().view({-1}).copy_(input.detach().view({-1}));
  }

  std::deque<at::Tensor> messages_;
  std::string aborted_;
};

}  // namespace

CommunicatorPtr make_local_world() {
  return std::make_shared<LocalCommunicator>(CommIdentity::of_world(0, 1));
}

}  // namespace shardline

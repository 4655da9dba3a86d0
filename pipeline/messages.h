// The borders that travel between stages. Every ordered pair of neighbouring stages has a channel of its own, made at
// the start: one end only sends, the other only receives, both in the order of their lists. So a receive may be posted
// long before it is needed without holding up anything that goes the other way, whatever carries the messages.
//
// Each channel has one receive posted ahead; nobody waits for a send, whose tensor lives until it is done. Tensors that
// are received go back to a pool when the last user has let go of them.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "core/communicator.h"
#include "core/layer.h"
#include "pipeline/schedule.h"

namespace shardline {

class Messages {
 public:
  // The sizes of the border that a receive expects.
  using Shapes = std::function<std::vector<std::vector<int64_t>>(const Instruction& receive)>;

  // Collective over pp (rank = stage).
  Messages(Communicator& pp, at::TensorOptions options);

  int stage() const { return stage_; }
  int stages() const { return stages_; }

  // Posts the first receives of this list; it must outlive the run.
  void begin(const std::vector<Instruction>& list, Shapes shapes);
  void send(const Border& border, const Instruction& instruction);
  // The border of this receive of the list, in their order.
  Border receive(const Instruction& instruction);
  // Waits for the sends.
  void finish();

 private:
  struct Message {
    Border border;
    std::vector<WorkPtr> works;
  };
  struct Incoming {
    std::deque<const Instruction*> expected;  // not posted yet
    std::deque<Message> posted;
  };

  Communicator& channel(int from, int to);
  void post_next(int peer, Incoming& incoming);
  at::Tensor buffer(const std::vector<int64_t>& sizes);
  void forget_finished_sends();

  int stage_, stages_;
  at::TensorOptions options_;
  Shapes shapes_;
  std::map<std::pair<int, int>, CommunicatorPtr> channels_;  // from, to
  std::map<int, Incoming> incoming_;                         // by peer
  std::deque<Message> sends_;
  std::vector<at::Tensor> buffers_;  // received into; free where nobody else holds the storage
};

}  // namespace shardline

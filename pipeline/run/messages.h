// Messages that carry borders between stages. Every ordered pair of stages with neighbouring chunks has its own
// channel, created before the first instruction of the first schedule that needs it: one end only sends, the other only
// receives, both in list order. So a receive may be posted long before it is needed without delaying messages in the
// other direction, with any communicator.
//
// Each channel has one receive posted ahead, except in runs in which an accelerator may wait for all its work, and thus
// for this receive. Its memory is always allocated ahead. Instructions do not wait for sends; the tensors of a send
// exist until it is complete.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

class Messages {
 public:
  // Returns the sizes of the border that a receive expects.
  using Shapes = std::function<std::vector<std::vector<int64_t>>(const Instruction& receive)>;

  // Sends messages over pp (rank = stage), which must outlive the object.
  Messages(Communicator& pp, at::TensorOptions options);

  int stage() const { return stage_; }
  int stages() const { return stages_; }

  // Creates new channels, then posts the first receives of this stage's list if receives are posted ahead. Collective
  // over pp; the schedule must outlive the run.
  void begin(const Schedule& schedule, Shapes shapes, bool posts_ahead);
  void send(const Border& border, const Instruction& instruction);
  // Returns the border of this receive; must be called in list order.
  Border receive(const Instruction& instruction);
  // Waits for all sends.
  void finish();

 private:
  struct Message {
    Border border;
    std::vector<WorkPtr> works;
  };
  struct Incoming {
    std::deque<const Instruction*> expected;  // those after `next`
    std::optional<Message> next;              // has memory; posted if receives are posted ahead
  };

  using StagePair = std::pair<int, int>;  // ascending

  void connect(const std::vector<int>& stage_of_chunk);
  void exchange_first_message(Communicator& channel, bool sends);
  Communicator& channel(int from, int to);
  void prepare_next(Incoming& incoming);
  void post(const Instruction& receive, Message& message);
  void forget_finished_sends();

  Communicator& pp_;
  int stage_, stages_;
  at::TensorOptions options_;
  Shapes shapes_;
  bool posts_ahead_ = true;
  std::set<StagePair> connected_;                            // pairs of any stages; the same set on all ranks
  std::map<std::pair<int, int>, CommunicatorPtr> channels_;  // by (from, to)
  std::map<int, Incoming> incoming_;                         // by peer
  std::deque<Message> sends_;
};

}  // namespace shardline

// Messages with the borders between stages. Every ordered pair of stages with neighbouring chunks has a channel of its
// own, created before the first instruction of the first schedule that needs it: one end only sends, the other only
// receives, both in the order of their lists. A receive may therefore be posted long before it is needed, without
// delaying messages in the other direction, whatever carries them.
//
// Each channel has one receive posted ahead, except in runs in which an accelerator may wait for all its work, which
// would include this receive. Its memory is always allocated ahead. Instructions do not wait for sends, whose tensors
// live until they have been sent.
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

  // Messages over pp (rank = stage), which must outlive the object.
  Messages(Communicator& pp, at::TensorOptions options);

  int stage() const { return stage_; }
  int stages() const { return stages_; }

  // Creates the channels that are new, then posts the first receives of this stage's list if receives are posted ahead.
  // Collective over pp; the schedule must outlive the run.
  void begin(const Schedule& schedule, Shapes shapes, bool posts_ahead);
  void send(const Border& border, const Instruction& instruction);
  // The border for this receive; receives must be called in the order of the list.
  Border receive(const Instruction& instruction);
  // Waits for the sends.
  void finish();

 private:
  struct Message {
    Border border;
    std::vector<WorkPtr> works;
  };
  struct Incoming {
    std::deque<const Instruction*> expected;  // those after the next
    std::optional<Message> next;              // has memory, and is posted if receives are posted ahead
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
  std::set<StagePair> connected_;                            // for all stages; the same on each of them
  std::map<std::pair<int, int>, CommunicatorPtr> channels_;  // by (from, to)
  std::map<int, Incoming> incoming_;                         // by peer
  std::deque<Message> sends_;
};

}  // namespace shardline

#include "pipeline/schedule/schedule_simulation.h"

#include <algorithm>

namespace shardline {
namespace {

struct Channel {
  int receiver = 0;
  std::vector<double> arrived;  // when message i arrives
  std::vector<double> wanted;   // when the receiver reached receive i
  size_t received = 0;          // messages
};

class Simulator {
 public:
  Simulator(const Schedule& schedule, int send_buffers, const InstructionCost& cost, const MessageTime& message)
      : schedule_(schedule),
        send_buffers_(send_buffers),
        cost_(cost),
        message_(message),
        channels_(schedule.instructions.size()) {
    result_.intervals.resize(schedule.instructions.size());
    clock_.resize(schedule.instructions.size());
    for (size_t stage = 0; stage < schedule.instructions.size(); ++stage) {
      result_.intervals[stage].reserve(schedule.instructions[stage].size());
      runnable_.push_back(stage);
    }
  }

  // A stage runs until it has to wait; what it does for a peer may make the peer runnable again.
  Simulation run() {
    while (!runnable_.empty()) {
      const int stage = runnable_.back();
      runnable_.pop_back();
      const auto& list = schedule_.instructions[stage];
      auto& done = result_.intervals[stage];
      while (done.size() < list.size() && execute(stage, list[done.size()])) {
      }
    }
    return std::move(result_);
  }

 private:
  Channel& channel(int from, int to) {
    auto& all = channels_[from];  // one for each of a few stages
    const auto found = std::ranges::find(all, to, &Channel::receiver);
    return found != all.end() ? *found : all.emplace_back(Channel{to});
  }

  bool execute(int stage, const Instruction& instruction) {
    if (is_send(instruction.op)) return send(stage, instruction.peer);
    if (is_receive(instruction.op)) return receive(stage, instruction.peer);
    const double now = clock_[stage];
    finish(stage, now, now + cost_(stage, instruction));
    return true;
  }

  bool send(int stage, int peer) {
    auto& to_peer = channel(stage, peer);
    double now = clock_[stage];
    if (to_peer.arrived.size() >= send_buffers_) {
      const size_t before = to_peer.arrived.size() - send_buffers_;  // this send needs that message's buffer
      if (before >= to_peer.wanted.size()) return false;
      now = std::max(now, to_peer.wanted[before]);
    }
    to_peer.arrived.push_back(message_ ? now + message_(stage, peer) : now);
    finish(stage, now, now);
    runnable_.push_back(peer);
    return true;
  }

  bool receive(int stage, int peer) {
    auto& from_peer = channel(peer, stage);
    if (from_peer.wanted.size() == from_peer.received) {
      from_peer.wanted.push_back(clock_[stage]);
      runnable_.push_back(peer);
    }
    if (from_peer.arrived.size() <= from_peer.received) return false;
    const double now = std::max(clock_[stage], from_peer.arrived[from_peer.received++]);
    finish(stage, now, now);
    return true;
  }

  void finish(int stage, double start, double end) {
    result_.intervals[stage].push_back({start, end});
    clock_[stage] = end;
  }

  const Schedule& schedule_;
  const size_t send_buffers_;
  const InstructionCost& cost_;
  const MessageTime& message_;
  std::vector<std::vector<Channel>> channels_;  // by sender
  std::vector<double> clock_;
  std::vector<int> runnable_;
  Simulation result_;
};

}  // namespace

bool is_send(Op op) {
  return op == Op::send_activation || op == Op::send_gradient;
}
bool is_receive(Op op) {
  return op == Op::recv_activation || op == Op::recv_gradient;
}

bool weights_follow(const std::vector<Instruction>& list, size_t place) {
  const Instruction weights{Op::backward_weight, list[place].microbatch, list[place].chunk};
  return list[place].op == Op::backward_input && place + 1 < list.size() && list[place + 1] == weights;
}

bool Simulation::finished(const Schedule& schedule) const {
  for (size_t stage = 0; stage < intervals.size(); ++stage)
    if (intervals[stage].size() < schedule.instructions[stage].size()) return false;
  return true;
}

double Simulation::makespan() const {
  double end = 0;
  for (const auto& stage : intervals)
    if (!stage.empty()) end = std::max(end, stage.back().end);
  return end;
}

Simulation simulate(const Schedule& schedule, int send_buffers, const InstructionCost& cost,
                    const MessageTime& message) {
  return Simulator(schedule, send_buffers, cost, message).run();
}

}  // namespace shardline

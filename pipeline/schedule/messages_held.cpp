#include "pipeline/schedule/messages_held.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace shardline {
namespace {

// By sender: when each message to the receiver may leave because its receive is posted, which is at the end of the
// previous receive.
using PostedTimes = std::map<int, std::vector<double>>;

PostedTimes posted_times(const Schedule& schedule, const Simulation& simulation, int receiver) {
  PostedTimes times;
  const auto& list = schedule.instructions[receiver];
  for (size_t i = 0; i < list.size(); ++i) {
    if (!is_receive(list[i].op)) continue;
    auto& of_sender = times[list[i].peer];
    if (of_sender.empty()) of_sender.push_back(0);
    of_sender.push_back(simulation.intervals[receiver][i].end);
  }
  return times;
}

// The instruction that uses the result of a receive.
Instruction use_of(const Instruction& receive) {
  const Op op = receive.op == Op::recv_activation ? Op::forward : Op::backward_input;
  return {op, receive.microbatch, receive.chunk};
}

}  // namespace

std::vector<std::vector<int>> messages_held(const Schedule& schedule, const InstructionCost& cost, int host_ahead) {
  const Simulation simulation = simulate(schedule, kUnboundedSends, cost);
  std::vector<PostedTimes> posted;  // by receiver
  for (int stage = 0; stage < schedule.stages; ++stage) posted.push_back(posted_times(schedule, simulation, stage));
  std::vector<std::vector<int>> held(schedule.stages);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto& list = schedule.instructions[stage];
    std::vector<int> expected(schedule.stages), sent(schedule.stages);  // by peer
    int ahead = 0;                                                      // peers from which a message is expected
    std::vector<std::tuple<Op, int, int>> waiting;                      // received and not used yet
    std::vector<double> sending;                                        // when each message may leave
    std::deque<double> ends;  // ends of the computing instructions for which the host may not have waited
    double seen = 0;          // the host has noticed everything that was over at this time
    for (const auto& instruction : list)
      if (is_receive(instruction.op) && expected[instruction.peer]++ == 0) ++ahead;
    held[stage].reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const auto& instruction = list[i];
      if (is_receive(instruction.op)) {
        if (--expected[instruction.peer] == 0) --ahead;
        const auto use = use_of(instruction);
        waiting.emplace_back(use.op, use.microbatch, use.chunk);
      }
      const Interval& interval = simulation.intervals[stage][i];
      if (computes(instruction.op)) {
        std::erase(waiting, std::tuple(instruction.op, instruction.microbatch, instruction.chunk));
        ends.push_back(interval.end);
        if (std::ssize(ends) > host_ahead) {
          seen = ends.front();
          ends.pop_front();
        }
      }
      if (is_send(instruction.op)) {
        const double now = host_ahead == 0 ? interval.start : seen;
        std::erase_if(sending, [&](double leaves) { return leaves <= now; });
        const size_t message = sent[instruction.peer]++;
        sending.push_back(std::max(interval.start, posted[instruction.peer].at(stage)[message]));
      }
      held[stage].push_back(ahead + static_cast<int>(waiting.size() + sending.size()));
    }
  }
  return held;
}

}  // namespace shardline

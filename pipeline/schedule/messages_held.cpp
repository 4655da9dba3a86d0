#include "pipeline/schedule/messages_held.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace shardline {
namespace {

using Channel = std::pair<int, int>;  // from, to

// When each message of a channel may leave its sender because its receive is posted: at the end of the previous
// receive.
std::map<Channel, std::vector<double>> posted_times(const Schedule& schedule, const Simulation& simulation) {
  std::map<Channel, std::vector<double>> times;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto& list = schedule.instructions[stage];
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_receive(list[i].op)) continue;
      auto& channel = times[{list[i].peer, stage}];
      if (channel.empty()) channel.push_back(0);
      channel.push_back(simulation.intervals[stage][i].end);
    }
  }
  return times;
}

// The instruction that uses what a receive returns.
Instruction use_of(const Instruction& receive) {
  const Op op = receive.op == Op::recv_activation ? Op::forward : Op::backward_input;
  return {op, receive.microbatch, receive.chunk};
}

}  // namespace

std::vector<std::vector<int>> messages_held(const Schedule& schedule, const InstructionCost& cost) {
  const Simulation simulation = simulate(schedule, kUnboundedSends, cost);
  const auto posted = posted_times(schedule, simulation);
  std::vector<std::vector<int>> held(schedule.stages);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto& list = schedule.instructions[stage];
    std::map<int, int> expected, sent;              // by peer
    std::vector<std::tuple<Op, int, int>> waiting;  // received and not used yet
    std::vector<double> sending;                    // when each may leave
    for (const auto& instruction : list) expected[instruction.peer] += is_receive(instruction.op);
    for (size_t i = 0; i < list.size(); ++i) {
      const auto& instruction = list[i];
      if (is_receive(instruction.op)) {
        --expected[instruction.peer];
        const auto use = use_of(instruction);
        waiting.emplace_back(use.op, use.microbatch, use.chunk);
      }
      std::erase(waiting, std::tuple(instruction.op, instruction.microbatch, instruction.chunk));
      if (is_send(instruction.op)) {
        const double now = simulation.intervals[stage][i].start;
        std::erase_if(sending, [&](double leaves) { return leaves <= now; });
        const size_t message = sent[instruction.peer]++;
        sending.push_back(posted.at({stage, instruction.peer})[message]);
      }
      const auto ahead =
          std::count_if(expected.begin(), expected.end(), [](const auto& peer) { return peer.second > 0; });
      held[stage].push_back(ahead + waiting.size() + sending.size());
    }
  }
  return held;
}

}  // namespace shardline

#include "pipeline/schedule/checker.h"

#include <algorithm>
#include <unordered_map>

#include "core/enum_array.h"

namespace shardline {
namespace {

bool needs_peer(Op op) {
  return is_send(op) || is_receive(op);
}

// The chunk at the other end of a message.
int neighbour(const Instruction& message) {
  const bool next = message.op == Op::send_activation || message.op == Op::recv_gradient;
  return next ? message.chunk + 1 : message.chunk - 1;
}

// The steps of the check, in order; each relies on the previous ones.
class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule) {}

  CheckReport check(int send_buffers) {
    check_frame();
    for (int stage = 0; stage < schedule_.stages; ++stage) check_stage(stage);
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk) check_complete(chunk);
    check_channels();
    report_.send_buffers = fewest_send_buffers(send_buffers);
    return report_;
  }

 private:
  size_t pair(int microbatch, int chunk) const { return size_t{1} * chunk * schedule_.microbatches + microbatch; }
  const std::vector<Instruction>& list(int stage) const { return schedule_.instructions[stage]; }
  int stage_of(int chunk) const { return schedule_.stage_of_chunk[chunk]; }
  bool is_chunk(int chunk) const { return chunk >= 0 && chunk < schedule_.chunks(); }

  [[noreturn]] void refuse(int stage, size_t index, const std::string& what) const {
    throw ScheduleError(cat("schedule \"", schedule_.name, "\": stage ", stage, ", instruction ", index, " (",
                            to_string(list(stage)[index]), "): ", what),
                        stage, index);
  }
  [[noreturn]] void refuse_stage(int stage, const std::string& what) const {
    throw ScheduleError(cat("schedule \"", schedule_.name, "\": stage ", stage, ": ", what), stage, -1);
  }
  [[noreturn]] void refuse_schedule(const std::string& what) const {
    throw ScheduleError(cat("schedule \"", schedule_.name, "\": ", what), -1, -1);
  }

  // Sizes must be consistent and small enough to keep a state per (microbatch, chunk).
  void check_frame() {
    if (schedule_.stages < 1 || schedule_.microbatches < 1 || schedule_.chunks() < 1)
      refuse_schedule(cat("stages, microbatches and chunks must be at least 1; got ", schedule_.stages, ", ",
                          schedule_.microbatches, ", ", schedule_.chunks()));
    if (std::ssize(schedule_.instructions) != schedule_.stages)
      refuse_schedule(
          cat("has ", schedule_.stages, " stages, but ", schedule_.instructions.size(), " lists of instructions"));
    std::vector<bool> has_chunk(schedule_.stages);
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk) {
      if (stage_of(chunk) < 0 || stage_of(chunk) >= schedule_.stages)
        refuse_schedule(
            cat("chunk ", chunk, " is on stage ", stage_of(chunk), ", but there are ", schedule_.stages, " stages"));
      has_chunk[stage_of(chunk)] = true;
    }
    int64_t instructions = 0;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      if (!has_chunk[stage]) refuse_stage(stage, "has no chunk");
      instructions += list(stage).size();
      for (const auto& instruction : list(stage)) report_.training |= !is_of_forward(instruction.op);
    }
    if (schedule_.first_backward_chunk < 0 || schedule_.first_backward_chunk >= schedule_.chunks())
      refuse_schedule(cat("backward passes begin with chunk ", schedule_.first_backward_chunk, ", but there are ",
                          schedule_.chunks(), " chunks"));
    if (instructions < int64_t{schedule_.microbatches} * schedule_.chunks())
      refuse_schedule(cat(instructions, " instructions are too few for ", schedule_.microbatches,
                          " microbatches through ", schedule_.chunks(), " chunks"));
    done_.resize(pair(0, schedule_.chunks()));
    next_input_.resize(schedule_.chunks());
    next_weight_.resize(schedule_.chunks());
    reduced_.resize(schedule_.chunks());
  }

  // Checks one stage's list by itself: everything it needs from other stages has a receive, so its order can be checked
  // separately.
  void check_stage(int stage) {
    int activations = 0, weight_pairs = 0, peak_activations = 0, peak_weight_pairs = 0;
    for (size_t index = 0; index < list(stage).size(); ++index) {
      const auto& instruction = list(stage)[index];
      check_names(stage, index);
      check_order(stage, index);
      if (!report_.training || instruction.chunk < schedule_.first_backward_chunk) continue;
      activations += (instruction.op == Op::forward);
      weight_pairs += (instruction.op == Op::backward_input);
      peak_activations = std::max(peak_activations, activations);
      peak_weight_pairs = std::max(peak_weight_pairs, weight_pairs);
      activations -= (instruction.op == Op::backward_input);
      weight_pairs -= (instruction.op == Op::backward_weight);
    }
    report_.peak_activations.push_back(peak_activations);
    report_.peak_weight_pairs.push_back(peak_weight_pairs);
  }

  void check_names(int stage, size_t index) const {
    const auto& instruction = list(stage)[index];
    if (!is_chunk(instruction.chunk) || stage_of(instruction.chunk) != stage)
      refuse(stage, index, "the chunk is on another stage, or does not exist");
    if (!is_needed(instruction, schedule_.first_backward_chunk))
      refuse(stage, index, cat("backward passes begin with chunk ", schedule_.first_backward_chunk));
    const bool of_microbatch = instruction.op != Op::end_gradients;
    if (of_microbatch && (instruction.microbatch < 0 || instruction.microbatch >= schedule_.microbatches))
      refuse(stage, index, cat("the step has the microbatches 0 to ", schedule_.microbatches - 1));
    if (!of_microbatch && instruction.microbatch != -1) refuse(stage, index, "takes no microbatch; it must be -1");
    if (!needs_peer(instruction.op)) {
      if (instruction.peer != -1) refuse(stage, index, "takes no peer; it must be -1");
      return;
    }
    const int chunk = neighbour(instruction);
    if (!is_chunk(chunk)) refuse(stage, index, "there is no chunk at the other end");
    if (stage_of(chunk) == stage)
      refuse(stage, index, cat("chunk ", chunk, " is on the same stage: no message is needed"));
    if (stage_of(chunk) != instruction.peer)
      refuse(stage, index, cat("the peer must be stage ", stage_of(chunk), ", which has chunk ", chunk));
  }

  bool was(Op op, int microbatch, int chunk) const { return done_[pair(microbatch, chunk)][op]; }

  // Whether the neighbouring chunk's result is available: through a message, or because that chunk is on this stage and
  // has run.
  bool arrived(Op receive, Op made_by, const Instruction& use) const {
    const int from = neighbour({receive, use.microbatch, use.chunk});
    if (!is_chunk(from)) return true;
    if (stage_of(from) != stage_of(use.chunk)) return was(receive, use.microbatch, use.chunk);
    return was(made_by, use.microbatch, from);
  }

  void check_order(int stage, size_t index) {
    const auto& instruction = list(stage)[index];
    const Op op = instruction.op;
    const int microbatch = instruction.microbatch, chunk = instruction.chunk;
    if (op == Op::end_gradients) {
      if (reduced_[chunk]) refuse(stage, index, "occurs a second time");
      if (next_weight_[chunk] < schedule_.microbatches)
        refuse(stage, index, cat("comes before backward_weight of microbatch ", next_weight_[chunk]));
      reduced_[chunk] = true;
      return;
    }
    if (was(op, microbatch, chunk)) refuse(stage, index, "occurs a second time");
    const auto needs = [&](Op before) {
      if (!was(before, microbatch, chunk)) refuse(stage, index, cat("comes before its ", to_string(before)));
    };
    switch (op) {
      case Op::recv_activation:
        break;
      case Op::recv_gradient:
        break;
      case Op::forward:
        if (!arrived(Op::recv_activation, Op::forward, instruction)) refuse(stage, index, "its input is not available");
        // The last chunk's forward computes gradients.
        if (report_.training && chunk + 1 == schedule_.chunks()) advance(next_loss_, stage, index);
        break;
      case Op::backward_input:
        needs(Op::forward);
        if (!arrived(Op::recv_gradient, Op::backward_input, instruction))
          refuse(stage, index, "its gradient is not available");
        advance(next_input_[chunk], stage, index);
        break;
      case Op::backward_weight:
        needs(Op::backward_input);
        advance(next_weight_[chunk], stage, index);
        break;
      case Op::settle_gradients:
        needs(Op::backward_weight);
        if (reduced_[chunk]) refuse(stage, index, "comes after end_gradients of its chunk");
        scatters_ = true;
        break;
      case Op::send_activation:
        needs(Op::forward);
        break;
      case Op::send_gradient:
        needs(Op::backward_input);
        break;
      case Op::end_gradients:
        break;
    }
    done_[pair(microbatch, chunk)][op] = true;
  }

  void advance(int& next, int stage, size_t index) const {
    if (list(stage)[index].microbatch != next)
      refuse(stage, index,
             cat("microbatches add to a chunk's gradients in ascending order; microbatch ", next, " is next"));
    ++next;
  }

  // Checks that nothing is missing; earlier steps have ruled out duplicates.
  void check_complete(int chunk) const {
    const int stage = stage_of(chunk);
    const bool has_backward = report_.training && chunk >= schedule_.first_backward_chunk;
    for (const Op op : {Op::recv_activation, Op::forward, Op::send_activation, Op::recv_gradient, Op::backward_input,
                        Op::backward_weight, Op::send_gradient, Op::settle_gradients}) {
      if (!is_of_forward(op) && !has_backward) continue;
      if (!is_needed({op, 0, chunk}, schedule_.first_backward_chunk)) continue;
      if (op == Op::settle_gradients && !scatters_) continue;
      const int other = neighbour({op, 0, chunk});
      if (needs_peer(op) && (!is_chunk(other) || stage_of(other) == stage)) continue;
      for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch)
        if (!was(op, microbatch, chunk))
          refuse_stage(stage, cat(to_string(op), " of microbatch ", microbatch, ", chunk ", chunk, " is missing"));
    }
    if (has_backward && !reduced_[chunk]) refuse_stage(stage, cat("end_gradients of chunk ", chunk, " is missing"));
  }

  // The k-th receive of a channel must expect the k-th message sent through it.
  void check_channels() const {
    struct Sent {
      int stage;
      size_t index;
    };
    struct Channel {
      std::vector<Sent> sends;
      size_t received = 0;
    };
    std::unordered_map<int64_t, Channel> channels;
    const auto channel = [&](int from, int to) -> Channel& { return channels[int64_t{from} * schedule_.stages + to]; };
    for (int stage = 0; stage < schedule_.stages; ++stage)
      for (size_t index = 0; index < list(stage).size(); ++index)
        if (is_send(list(stage)[index].op)) channel(stage, list(stage)[index].peer).sends.push_back({stage, index});
    for (int stage = 0; stage < schedule_.stages; ++stage)
      for (size_t index = 0; index < list(stage).size(); ++index) {
        const auto& receive = list(stage)[index];
        if (!is_receive(receive.op)) continue;
        auto& from_peer = channel(receive.peer, stage);
        // Every message is sent once and received once, so the counts agree and only the order can be wrong.
        const auto [sender, at] = from_peer.sends[from_peer.received++];
        const auto& send = list(sender)[at];
        const bool same_kind = (send.op == Op::send_activation) == (receive.op == Op::recv_activation);
        if (!same_kind || send.microbatch != receive.microbatch || neighbour(send) != receive.chunk)
          refuse(stage, index,
                 cat("the next message from stage ", sender, " comes from its instruction ", at, " (", to_string(send),
                     ")"));
      }
  }

  int fewest_send_buffers(int limit) const {
    const auto run = [&](int buffers) {
      return simulate(schedule_, buffers, [](int, const Instruction&) { return 0.0; });
    };
    const auto runs_through = [&](int buffers) { return run(buffers).finished(schedule_); };
    // More buffers never cause a deadlock: double them until the schedule finishes, then halve the gap.
    int too_few = -1, enough = 0;
    while (enough < limit && !runs_through(enough)) {
      too_few = enough;
      const bool all = enough >= 2 * schedule_.microbatches * schedule_.chunks();  // no channel has more messages
      enough = all || enough > limit / 2 ? limit : std::max(1, 2 * enough);
    }
    if (enough == limit)
      if (const auto simulation = run(limit); !simulation.finished(schedule_)) refuse_cycle(simulation, limit);
    while (enough - too_few > 1) {
      const int middle = too_few + (enough - too_few) / 2;
      (runs_through(middle) ? enough : too_few) = middle;
    }
    return enough;
  }

  // A blocked stage waits for its instruction's peer, which is also blocked, so following the peers leads to a cycle.
  [[noreturn]] void refuse_cycle(const Simulation& simulation, int send_buffers) const {
    const auto stands_at = [&](int stage) { return simulation.intervals[stage].size(); };
    int stage = 0;
    while (stands_at(stage) == list(stage).size()) ++stage;
    const auto peer_of = [&](int waiting) { return list(waiting)[stands_at(waiting)].peer; };
    std::vector<bool> seen(schedule_.stages);
    for (; !seen[stage]; stage = peer_of(stage)) seen[stage] = true;
    std::string cycle = "waits";
    for (int waiting = peer_of(stage); waiting != stage; waiting = peer_of(waiting))
      cycle += cat(" for stage ", waiting, ", instruction ", stands_at(waiting), " (",
                   to_string(list(waiting)[stands_at(waiting)]), "), which waits");
    refuse(stage, stands_at(stage),
           cat(cycle, " for this instruction: the stages wait for each other (",
               send_buffers == kUnboundedSends ? "any number of" : std::to_string(send_buffers),
               " send buffers per channel)"));
  }

  const Schedule& schedule_;
  CheckReport report_;
  std::vector<EnumArray<Op, bool, 9>> done_;   // by pair: whether the Op was seen
  std::vector<int> next_input_, next_weight_;  // by chunk: the microbatch whose backward half is due next
  int next_loss_ = 0;                          // the microbatch whose loss is due next
  std::vector<bool> reduced_;                  // by chunk
  bool scatters_ = false;                      // whether each microbatch's gradients are reduce-scattered
};

}  // namespace

CheckReport check_schedule(const Schedule& schedule, int send_buffers) {
  return Checker(schedule).check(send_buffers);
}

}  // namespace shardline

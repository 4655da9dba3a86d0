#include "pipeline/activations/activation_bytes.h"

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

// How an instruction changes the live bytes, relative to its start. This is the same for all microbatches.
struct Effect {
  int64_t in_use = 0;   // peak of bytes in use
  int64_t kept = 0;     // peak of bytes kept
  int64_t after = 0;    // bytes kept at its end
  int64_t away = 0;     // for a forward whose result may be offloaded: bytes moved out, not included in `after`
  int64_t waiting = 0;  // for a backward that is not drained: the weight pairs that wait

  void pass(int64_t bytes) { in_use = std::max(in_use, after + bytes); }
  void add(int64_t bytes) { kept = std::max(kept, after += bytes); }
  void remove(int64_t bytes) { after -= bytes; }
};

// The effects of the instructions of a chunk.
class ChunkEffects {
 public:
  ChunkEffects(const std::vector<int>& layers, const ActivationChoices& choices, const std::vector<LayerBytes>& bytes)
      : layers_(layers),
        choices_(choices),
        bytes_(bytes),
        groups_(layer_groups(layers, choices.recompute, choices.first_with_backward)) {
    for (const bool out : {false, true}) forward[out] = forward_effect(out, nullptr);
    for (const bool drain : {false, true}) backward[drain] = backward_effect(drain);
    for (const LayerGroup& group : groups_)
      if (moves_out(group)) moved.push_back(kept_of(group));
  }

  // The effect of a forward on an accelerator if its result is offloaded. leaving: the bytes of the stores that are
  // still kept; updated.
  Effect leaving_forward(std::deque<int64_t>& leaving) const { return forward_effect(true, &leaving); }

  Effect forward[2];           // index: whether what may be offloaded is moved out at once
  Effect backward[2];          // index: whether weight gradients are computed immediately
  std::vector<int64_t> moved;  // bytes that may be offloaded, by group

 private:
  const LayerBytes& bytes(size_t i) const { return bytes_[layers_[i]]; }

  bool moves_out(const LayerGroup& group) const {
    return group.has_backward && may_move_out(choices_.offload, group.recomputed);
  }

  // The bytes that a forward pass keeps for a group.
  int64_t kept_of(const LayerGroup& group) const {
    const LayerBytes& first = bytes(group.first);
    return group.recomputed ? first.input : first.kept.activations;
  }

  Effect forward_effect(bool out, std::deque<int64_t>* leaving) const {
    Effect effect;
    for (const LayerGroup& group : groups_) {
      const LayerBytes& first = bytes(group.first);
      for (size_t i = group.first; i < group.first + group.count; ++i)
        effect.pass((i == group.first ? 0 : first.input) + bytes(i).input + bytes(i).passes.forward);
      if (!group.has_backward) continue;
      const int64_t kept = kept_of(group);
      effect.add(kept);
      if (!out || kept == 0 || !moves_out(group)) continue;
      effect.away += kept;
      if (leaving) leaving->push_back(kept);
      if (!leaving)
        effect.remove(kept);
      else if (leaving->size() > kLeavingStores) {
        effect.remove(leaving->front());
        leaving->pop_front();
      }
    }
    return effect;
  }

  Effect backward_effect(bool drain) const {
    Effect effect;
    for (size_t g = groups_.size(); g-- > 0 && groups_[g].has_backward;) {
      const LayerGroup& group = groups_[g];
      for (size_t i = group.first; group.recomputed && i < group.first + group.count; ++i) {
        const int64_t input = bytes(i).input;
        effect.pass(gradient(group.first + group.count - 1) + (i == group.first ? 0 : input) + bytes(i).passes.forward);
        effect.add(bytes(i).kept.activations - (i == group.first ? input : 0));
      }
      for (size_t i = group.first + group.count; i-- > group.first;) {
        const auto& [input, kept, passes] = bytes(i);
        effect.pass(gradient(i) + (drain ? passes.backward : passes.input_gradient));
        effect.remove(kept.activations);
        if (drain) continue;
        effect.add(kept.weight_pairs);
        effect.waiting += kept.weight_pairs;
      }
    }
    return effect;
  }

  // The gradient of a layer's result, which has the size of the next layer's input.
  int64_t gradient(size_t i) const {
    const size_t next = layers_[i] + 1;
    return next < bytes_.size() ? bytes_[next].input : 0;
  }

  const std::vector<int>& layers_;
  const ActivationChoices& choices_;
  const std::vector<LayerBytes>& bytes_;
  const std::vector<LayerGroup> groups_;
};

class Walk {
 public:
  Walk(const Schedule& schedule, int stage, const std::vector<std::vector<int>>& layers_of_chunk,
       const ActivationChoices& choices, const std::vector<LayerBytes>& bytes, const std::vector<int64_t>& messages)
      : list_(schedule.instructions[stage]),
        offload_(choices.offload),
        on_accelerator_(choices.on_accelerator),
        messages_(messages),
        microbatches_(schedule.microbatches),
        effects_(schedule.chunks()),
        passes_(schedule.chunks() * static_cast<size_t>(schedule.microbatches)) {
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk)
      if (schedule.stage_of_chunk[chunk] == stage) effects_[chunk].emplace(layers_of_chunk[chunk], choices, bytes);
    for (size_t i = 0; i < list_.size(); ++i)
      if (list_[i].op == Op::backward_input) pass_of(list_[i]).backward = i;
  }

  ActivationPeak peak() {
    const size_t horizon = offload_.horizon;
    for (size_t i = 0; i < list_.size(); ++i) {
      if (offload_.enabled && i + horizon < list_.size()) come_back(list_[i + horizon]);
      use(0, i);
      const Instruction& instruction = list_[i];
      if (!computes(instruction.op)) continue;
      const ChunkEffects& chunk = *effects_[instruction.chunk];
      Pass& pass = pass_of(instruction);
      if (instruction.op == Op::forward) {
        const bool out = pass.backward && moves_out(offload_, i, *pass.backward);
        const Effect effect = out && on_accelerator_ ? chunk.leaving_forward(leaving_) : chunk.forward[out];
        apply(effect, i);
        pass.away = effect.away;
        if (out) pass.buffers = take_buffers(chunk.moved);
      } else if (instruction.op == Op::backward_input) {
        for (const int64_t bytes : std::exchange(pass.buffers, {})) free_buffers_.insert(bytes);
        const bool drain = weights_follow(list_, i);
        apply(chunk.backward[drain], i);
        pass.waiting = chunk.backward[drain].waiting;
      } else if (instruction.op == Op::backward_weight) {
        live_.remove(pass.waiting);
      }
    }
    return {live_.peak(), in_use_, total_, offloaded_};
  }

 private:
  // The state of one microbatch in a chunk.
  struct Pass {
    std::optional<size_t> backward;  // the index of its backward_input
    int64_t away = 0, waiting = 0;   // bytes
    std::vector<int64_t> buffers;    // on the host, until its backward_input, even after the fetch
  };
  Pass& pass_of(const Instruction& at) {
    return passes_[static_cast<size_t>(at.chunk) * microbatches_ + at.microbatch];
  }

  void apply(const Effect& effect, size_t place) {
    use(effect.in_use, place);
    live_.add(effect.kept);
    live_.remove(effect.kept - effect.after);
  }

  void come_back(const Instruction& instruction) {
    if (instruction.op == Op::backward_input) live_.add(std::exchange(pass_of(instruction).away, 0));
  }

  // Does the same as offload_host.cpp: takes the smallest buffers that are large enough, or new ones.
  std::vector<int64_t> take_buffers(const std::vector<int64_t>& moved) {
    std::vector<int64_t> taken;
    for (const int64_t bytes : moved)
      if (const auto free = free_buffers_.lower_bound(bytes); free != free_buffers_.end()) {
        taken.push_back(free_buffers_.extract(free).value());
      } else {
        taken.push_back(bytes);
        offloaded_ += bytes;
      }
    return taken;
  }

  void use(int64_t bytes, size_t place) {
    in_use_ = std::max(in_use_, live_.now() + bytes);
    total_ = std::max(total_, live_.now() + bytes + messages_[place]);
  }

  const std::vector<Instruction>& list_;
  const OffloadOptions& offload_;
  const bool on_accelerator_;
  const std::vector<int64_t>& messages_;
  const size_t microbatches_;
  std::vector<std::optional<ChunkEffects>> effects_;  // by chunk; unset on other stages
  std::vector<Pass> passes_;                          // by chunk and microbatch
  std::multiset<int64_t> free_buffers_;               // on the host, by size
  std::deque<int64_t> leaving_;                       // see leaving_forward
  LiveBytes live_;
  int64_t in_use_ = 0, total_ = 0, offloaded_ = 0;
};

}  // namespace

std::map<std::pair<int, int>, size_t> backward_instructions(const std::vector<Instruction>& list) {
  std::map<std::pair<int, int>, size_t> places;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].op == Op::backward_input) places[{list[i].microbatch, list[i].chunk}] = i;
  return places;
}

ActivationPeak peak_activation_bytes(const Schedule& schedule, int stage,
                                     const std::vector<std::vector<int>>& layers_of_chunk,
                                     const ActivationChoices& choices, const std::vector<LayerBytes>& layers,
                                     const std::vector<int64_t>& message_bytes) {
  return Walk(schedule, stage, layers_of_chunk, choices, layers, message_bytes).peak();
}

}  // namespace shardline

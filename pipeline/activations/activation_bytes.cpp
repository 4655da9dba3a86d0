#include "pipeline/activations/activation_bytes.h"

#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

class Walk {
 public:
  Walk(const Schedule& schedule, int stage, const std::vector<std::vector<int>>& layers_of_chunk,
       const ActivationChoices& choices, const std::vector<LayerBytes>& bytes, const std::vector<int64_t>& messages)
      : list_(schedule.instructions[stage]),
        layers_of_chunk_(layers_of_chunk),
        choices_(choices),
        bytes_(bytes),
        messages_(messages) {}

  ActivationPeak peak() {
    const size_t horizon = choices_.offload.horizon;
    const auto backward_of = backward_instructions(list_);
    for (size_t i = 0; i < list_.size(); ++i) {
      const auto& [op, microbatch, chunk, peer] = list_[i];
      place_ = i;
      if (choices_.offload.enabled && i + horizon < list_.size()) come_back(list_[i + horizon]);
      pass(0);
      if (op == Op::forward && backward_of.contains({microbatch, chunk}))
        forward(list_[i], moves_out(choices_.offload, i, backward_of.at({microbatch, chunk})));
      if (op == Op::backward_input) backward(list_[i], weights_follow(list_, i));
      if (op == Op::backward_weight) live_.remove(waiting_[{microbatch, chunk}]);
    }
    return {live_.peak(), in_use_, total_, offload_space_};
  }

 private:
  const LayerBytes& bytes(const std::vector<int>& layers, size_t i) const { return bytes_[layers[i]]; }
  const std::vector<int>& layers_of(const Instruction& instruction) const {
    return layers_of_chunk_[instruction.chunk];
  }

  void forward(const Instruction& instruction, bool out) {
    const auto& layers = layers_of(instruction);
    for (const LayerGroup& group : layer_groups(layers, choices_.recompute)) {
      const LayerBytes& first = bytes(layers, group.first);
      for (size_t i = group.first; i < group.first + group.count; ++i)
        pass((i == group.first ? 0 : first.input) + bytes(layers, i).input + bytes(layers, i).passes.forward);
      const int64_t kept = group.recomputed ? first.input : first.kept.activations;
      live_.add(kept);
      if (!out || !may_move_out(choices_.offload, group.recomputed)) continue;
      live_.remove(kept);
      away_[{instruction.microbatch, instruction.chunk}] += kept;
      store(instruction, kept);
    }
  }

  void come_back(const Instruction& instruction) {
    if (instruction.op != Op::backward_input) return;
    if (const auto found = away_.extract({instruction.microbatch, instruction.chunk})) live_.add(found.mapped());
  }

  void store(const Instruction& instruction, int64_t bytes) {
    stored_[{instruction.microbatch, instruction.chunk}].push_back(bytes);
    if (int64_t& free = free_space_[bytes]; free > 0)
      --free;
    else
      offload_space_ += bytes;
  }

  void backward(const Instruction& instruction, bool drain) {
    if (const auto found = stored_.extract({instruction.microbatch, instruction.chunk}))
      for (const int64_t bytes : found.mapped()) ++free_space_[bytes];
    const auto& layers = layers_of(instruction);
    const auto groups = layer_groups(layers, choices_.recompute);
    for (size_t g = groups.size(); g-- > 0;) {
      const LayerGroup& group = groups[g];
      for (size_t i = group.first; group.recomputed && i < group.first + group.count; ++i) {
        const int64_t input = bytes(layers, i).input;
        pass(gradient(layers, group.first + group.count - 1) + (i == group.first ? 0 : input) +
             bytes(layers, i).passes.forward);
        live_.add(bytes(layers, i).kept.activations - (i == group.first ? input : 0));
      }
      for (size_t i = group.first + group.count; i-- > group.first;) {
        const auto& [input, kept, passes] = bytes(layers, i);
        pass(gradient(layers, i) + (drain ? passes.backward : passes.input_gradient));
        live_.remove(kept.activations);
        if (drain) continue;
        live_.add(kept.weight_pairs);
        waiting_[{instruction.microbatch, instruction.chunk}] += kept.weight_pairs;
      }
    }
  }

  // The gradient of a layer's result, which is as large as the next layer's input.
  int64_t gradient(const std::vector<int>& layers, size_t i) const {
    const size_t next = layers[i] + 1;
    return next < bytes_.size() ? bytes_[next].input : 0;
  }

  void pass(int64_t bytes) {
    in_use_ = std::max(in_use_, live_.now() + bytes);
    total_ = std::max(total_, live_.now() + bytes + messages_[place_]);
  }

  const std::vector<Instruction>& list_;
  const std::vector<std::vector<int>>& layers_of_chunk_;
  const ActivationChoices& choices_;
  const std::vector<LayerBytes>& bytes_;
  const std::vector<int64_t>& messages_;
  size_t place_ = 0;                                            // index in the list
  std::map<std::pair<int, int>, int64_t> away_, waiting_;       // by microbatch and chunk
  std::map<std::pair<int, int>, std::vector<int64_t>> stored_;  // likewise, the sizes of what is offloaded
  std::map<int64_t, int64_t> free_space_;                       // number of free places by size
  LiveBytes live_;
  int64_t in_use_ = 0, total_ = 0, offload_space_ = 0;
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

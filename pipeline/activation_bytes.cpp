#include "pipeline/activation_bytes.h"

namespace shardline {
namespace {

class Walk {
 public:
  Walk(const Schedule& schedule, int stage, const std::vector<std::vector<int>>& layers_of_chunk,
       const ActivationChoices& choices, const std::vector<int64_t>& input_bytes)
      : list_(schedule.instructions[static_cast<size_t>(stage)]),
        layers_of_chunk_(layers_of_chunk),
        choices_(choices),
        input_bytes_(input_bytes) {}

  int64_t peak() {
    const auto horizon = static_cast<size_t>(choices_.offload.horizon);
    const auto backward_of = backward_instructions(list_);
    for (size_t i = 0; i < list_.size(); ++i) {
      if (choices_.offload.enabled && i + horizon < list_.size()) come_back(list_[i + horizon]);
      const auto& [op, microbatch, chunk, peer] = list_[i];
      if (op == Op::forward && backward_of.contains({microbatch, chunk}))
        forward(list_[i], moves_out(choices_.offload, i, backward_of.at({microbatch, chunk})));
      if (op == Op::backward_input) backward(list_[i]);
    }
    return live_.peak();
  }

 private:
  int64_t bytes(const std::vector<int>& layers, size_t i) const { return input_bytes_[static_cast<size_t>(layers[i])]; }
  const std::vector<int>& layers_of(const Instruction& at) const {
    return layers_of_chunk_[static_cast<size_t>(at.chunk)];
  }

  void forward(const Instruction& at, bool out) {
    const auto& layers = layers_of(at);
    for (const LayerGroup& group : layer_groups(layers, choices_.recompute)) {
      live_.add(bytes(layers, group.first));
      if (!group.recomputed || !out) continue;
      live_.remove(bytes(layers, group.first));
      away_[{at.microbatch, at.chunk}] += bytes(layers, group.first);
    }
  }

  void come_back(const Instruction& at) {
    if (at.op != Op::backward_input) return;
    if (const auto found = away_.extract({at.microbatch, at.chunk})) live_.add(found.mapped());
  }

  void backward(const Instruction& at) {
    const auto& layers = layers_of(at);
    const auto groups = layer_groups(layers, choices_.recompute);
    for (size_t g = groups.size(); g-- > 0;) {
      for (size_t i = groups[g].first + 1; i < groups[g].first + groups[g].count; ++i) live_.add(bytes(layers, i));
      for (size_t i = groups[g].first; i < groups[g].first + groups[g].count; ++i) live_.remove(bytes(layers, i));
    }
  }

  const std::vector<Instruction>& list_;
  const std::vector<std::vector<int>>& layers_of_chunk_;
  const ActivationChoices& choices_;
  const std::vector<int64_t>& input_bytes_;
  std::map<std::pair<int, int>, int64_t> away_;  // by microbatch and chunk
  LiveBytes live_;
};

}  // namespace

std::map<std::pair<int, int>, size_t> backward_instructions(const std::vector<Instruction>& list) {
  std::map<std::pair<int, int>, size_t> places;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].op == Op::backward_input) places[{list[i].microbatch, list[i].chunk}] = i;
  return places;
}

int64_t peak_activation_bytes(const Schedule& schedule, int stage, const std::vector<std::vector<int>>& layers_of_chunk,
                              const ActivationChoices& choices, const std::vector<int64_t>& input_bytes) {
  return Walk(schedule, stage, layers_of_chunk, choices, input_bytes).peak();
}

}  // namespace shardline

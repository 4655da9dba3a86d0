#include "pipeline/activations/acquired_layers.h"

#include <iterator>

namespace shardline {

std::vector<int> acquired_layers(const std::vector<Instruction>& list,
                                 const std::vector<std::vector<int>>& layers_of_chunk,
                                 const std::vector<std::vector<LayerGroup>>& groups_of_chunk) {
  std::vector<int> acquired;
  for (const auto& instruction : list) {
    const auto& layers = layers_of_chunk[instruction.chunk];
    if (instruction.op == Op::forward) acquired.insert(acquired.end(), layers.begin(), layers.end());
    if (instruction.op != Op::backward_input) continue;
    const auto& groups = groups_of_chunk[instruction.chunk];
    for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
      if (!group->has_backward) break;
      const auto first = layers.begin() + group->first;
      const auto end = first + group->count;
      if (group->recomputed) acquired.insert(acquired.end(), first, end);
      acquired.insert(acquired.end(), std::make_reverse_iterator(end), std::make_reverse_iterator(first));
    }
  }
  return acquired;
}

}  // namespace shardline

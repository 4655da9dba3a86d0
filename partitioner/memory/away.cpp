#include "partitioner/memory/away.h"

#include <map>

namespace shardline {

std::vector<bool> away_between(const Layout& layout, const std::vector<Instruction>& list) {
  std::vector<bool> away(list.size());
  if (!layout.offload.enabled) return away;
  std::map<std::pair<int, int>, size_t> forwards;  // by microbatch and chunk
  for (size_t i = 0; i < list.size(); ++i) {
    const std::pair key(list[i].microbatch, list[i].chunk);
    if (list[i].op == Op::forward) forwards[key] = i;
    if (list[i].op != Op::backward_input) continue;
    const size_t forward = forwards.extract(key).mapped();
    away[forward] = away[i] = can_be_away(forward, i, layout.offload.horizon);
  }
  return away;
}

}  // namespace shardline

#include <algorithm>
#include <functional>

#include "pipeline/schedule/kinds/schedule_generators.h"
#include "pipeline/schedule/schedule_builder.h"

namespace shardline {
namespace {

// A stage has `active` microbatches between forward and weight gradient. Of these, `ahead` wait for their input
// gradient; weight gradients lag by the difference.
Schedule zero_bubble(const char* name, int stages, int microbatches, int active, const std::function<int(int)>& ahead) {
  CellLists cells(stages);
  for (int stage = 0; stage < stages; ++stage) {
    auto& list = cells[stage];
    const int lag = active - ahead(stage);
    int forwards = 0;
    for (int backward = 0; backward < microbatches; ++backward) {
      while (forwards < std::min(backward + ahead(stage), microbatches))
        list.push_back({CellWork::forward, forwards++, stage});
      list.push_back({CellWork::backward_input, backward, stage});
      if (backward >= lag) list.push_back({CellWork::backward_weight, backward - lag, stage});
    }
    for (int weight = std::max(0, microbatches - lag); weight < microbatches; ++weight)
      list.push_back({CellWork::backward_weight, weight, stage});
  }
  return build_schedule(name, round_robin_chunks(stages, 1), microbatches, cells);
}

// The share of `active` for a stage that would take `wanted` of `needed`; at least 1, rounded up.
int share(int64_t active, int64_t wanted, int64_t needed) {
  return (active * wanted + needed - 1) / needed;
}

}  // namespace

Schedule zb_h1(int stages, int microbatches, int active_microbatches) {
  check_sizes("ZB-H1", stages, microbatches, active_microbatches);
  const int active = active_microbatches == 0 ? stages : std::min(active_microbatches, stages);
  return zero_bubble("ZB-H1", stages, microbatches, active,
                     [&](int stage) { return share(active, stages - stage, stages); });
}

Schedule zb_h2(int stages, int microbatches, int active_microbatches) {
  check_sizes("ZB-H2", stages, microbatches, active_microbatches);
  const int needed = 2 * stages - 1;
  const int active = active_microbatches == 0 ? needed : std::min(active_microbatches, needed);
  return zero_bubble("ZB-H2", stages, microbatches, active,
                     [&](int stage) { return share(active, 2 * (stages - stage) - 1, needed); });
}

}  // namespace shardline

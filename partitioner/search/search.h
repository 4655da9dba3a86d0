// Searches for the best layout of a workload at its global batch: tries all combinations, pruned by bounds that need no
// schedule. The bound of the memory is never too high; that of the time is an estimate (docs/planner.md).
#pragma once
#include <functional>

#include "partitioner/search/planned_layout.h"

namespace shardline {

enum class Ranking { time, cost, memory };

// The dimensions of the search. An empty list allows everything that is possible.
struct SearchSpace {
  Layout base;  // supplies the fields that do not vary
  // Returns the model for a tensor-parallel degree and sequence_parallel; unset: always the workload's model.
  std::function<ModelSpec(int tensor, bool sequence_parallel)> spec;
  std::vector<int> worlds;  // numbers of ranks; empty: all devices of the cluster
  std::vector<int> tensor, pipeline, replicas;
  std::vector<int> microbatch_sizes = {1, 2, 4, 8, 16, 32};
  std::vector<int> microbatches;  // per replica and step
  std::vector<ScheduleSource> schedules = {"interleaved", "interleaved_1f1b", "zb_h1"};
  std::vector<int> chunks = {2, 3, 4, 6};         // for "interleaved_1f1b"
  std::vector<std::vector<Recompute>> recompute;  // by layer, as in a layout
  std::vector<Sharding::Level> sharded = {Sharding::Level::none, Sharding::Level::optimizer, Sharding::Level::gradients,
                                          Sharding::Level::weights};
  std::vector<int> sharding_degrees = {0};  // for sharded weights; 0: all replicas
  std::vector<bool> sequence_parallel = {false, true};
  std::vector<OffloadOptions> offload = {{}, {.enabled = true}};
  std::vector<Placement> placements = {"cluster"};
  std::vector<Placement> other_placements;  // ranked layouts get one of these if it makes their step faster
  double memory_weight = 0;                 // weight of memory in the cut, see PartitionProblem
  int keep = 10;                            // number of ranked layouts to keep
};

struct Loser {
  Layout layout;
  // "stage 0 needs 51.2 GiB of 40.0 GiB: ..." or "takes 31 s or more by its bound; place 10 takes 29.5 s"
  std::string reason;
  bool fits = false;  // or may fit: it lost by the ranking criterion
  double bytes = 0;   // for the largest stage, or a lower bound
};

struct SearchResult {
  std::vector<PlannedLayout> best;   // ranked; all fit; at most `keep`
  std::vector<std::string> reasons;  // by place in `best`: why the layout is not first; empty for the first
  std::vector<Loser> losers;         // all others: first those whose blocks cannot fit, then by bound
  double seconds = 0;                // duration of the search

  const Loser& closest() const;  // if no layout fits: the one that needs the least memory, as far as known
};

// If the space is empty, throws ConfigError with the rules that excluded all layouts: no degrees divide the ranks, no
// microbatch divides the batch, ...
SearchResult search(const Workload& workload, const Machines& machines, const SearchSpace& space, Ranking ranking);

}  // namespace shardline

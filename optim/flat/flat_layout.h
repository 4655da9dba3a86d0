// The positions of the parameters of one layer (or one tied parameter) in its flat buffers on one rank, computed
// without allocating anything. Parameters that are reduced, sharded and updated in the same way share a segment, so all
// of this is done for contiguous ranges, not tensor by tensor.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// What each of the T ranks holds of a gradient: its own slice, the same whole gradient, or one summand of it.
enum class Sharing { split, complete, partial };
Sharing sharing_of(const ParamSpec& spec, int t_degree);

// What replicas shard: from ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054), with MiCS (Zhang et al. 2022, arXiv
// 2205.00119) if fewer than all replicas share one copy.
struct Sharding {
  // Each level includes the previous ones.
  enum class Level { none, optimizer, gradients, weights } level = Level::none;
  int degree = 1;  // replicas that share one copy
  // These three apply to `weights` only.
  int64_t whole_below = 0;          // parameters with fewer (logical) elements stay whole on every rank
  int64_t most_gathered = 0;        // prefetching must not exceed this many gathered elements at a time; 0: no limit
  int64_t most_reduced = 0;         // the most elements whose reduction may overlap the next layer's backward; 0: any
  bool hierarchical_gather = true;  // values are gathered by core/comm/hierarchical_gather.h
  bool operator==(const Sharding&) const = default;

  // Whether the reduction of this many elements must end before the next layer's backward.
  bool reduces_alone(int64_t elements) const {
    return level == Level::weights && most_reduced > 0 && elements > most_reduced;
  }
};

struct Segment {
  Sharing sharing;
  bool decays;
  bool trainable;
  bool deferred;       // its gradients come from the WeightGradQueue
  int shards = 1;      // number of ranks that share the segment; 1: not sharded
  int64_t length = 0;  // elements, including padding: shards * shard_length()

  int64_t shard_length() const { return length / shards; }
};

struct NamedParam {
  std::string full_name;
  const ParamSpec* spec;
};

struct FlatLayout {
  // Parameters and shards begin at multiples of this many elements: 64 bytes in the smallest type.
  static constexpr int64_t kAlignment = 32;

  struct Place {
    NamedParam param;
    size_t segment;
    int64_t begin, length;       // in the segment, without padding
    std::vector<int64_t> shape;  // on this rank
  };
  std::vector<Segment> segments;  // trainable segments come first
  std::vector<Place> places;      // in the order of the parameters
};

FlatLayout flat_layout(const std::vector<NamedParam>& params, int t, int t_degree, const Sharding& sharding);

}  // namespace shardline

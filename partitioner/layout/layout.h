// What is planned (a job) and one way to run it (a layout).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/model/mesh.h"
#include "core/model/model_spec.h"
#include "partitioner/layout/cluster.h"
#include "partitioner/layout/profile.h"
#include "pipeline/schedule/kinds/schedule_choice.h"

namespace shardline {

// What of a block's forward runs again before its backward: nothing, the attention core, or all of it.
enum class Recomputed { nothing, core, blocks };
const char* to_string(Recomputed recomputed);  // as the config says it: "none", "selective", "each"

// How the ranks that share a copy gather values over several nodes: by the rings of a library that knows the nodes, by
// messages from each rank to each, or in the two steps of core/comm/hierarchical_gather.h.
enum class GatherWay { rings, messages, two_steps };

// What of a layer's kept activations waits on the host: nothing, the inputs of recomputed blocks, or all.
enum class Offloaded { nothing, inputs, everything };
const char* to_string(
    Offloaded offloaded);  // as the config's offload_scope says it: "checkpointed", "all"; else "none"

// Properties of the program that trains. The defaults are ours; published results of others need theirs.
struct Software {
  bool fused = true;              // attention and loss in blocks (WorkShape::fused)
  bool scatter_gather = false;    // the T senders of a whole border send a part each; the receivers gather it
  bool overlap_reduction = true;  // gradients are reduced while the last backwards run
  bool overlap_tensor = true;  // in a backward that is not split, a linear's messages over T and its products overlap
  bool separate_addition = false;  // a sweep adds a product to the gradient, not the product itself
  int gradient_bytes = 4;          // of a gradient's element
  double optimizer_bytes = 8;      // of the optimizer's state for a parameter, without a master copy; on average
  double extra_update_bytes = 0;   // through memory, of a parameter, in sweeps besides the norm's and the update's
  GatherWay gather_way = GatherWay::rings;
  bool own_ops = false;  // layers keep what they state (LayerSpec::kept), not what papers count
};

struct Job {
  Cluster cluster;
  ModelSpec spec;  // made for sequence_parallel as the layout says, where it makes a difference
  int64_t sequence_length = 1;
  int64_t global_batch = 1;
  Precision precision = Precision::bf16;
  bool fp32_borders = false;  // activations between layers are fp32 in any case
  Software software;
  int64_t whole_below = 0;      // of sharded weights: parameters of fewer elements stay whole
  int loading_horizon = 4;      // what was offloaded is back so many instructions before its use
  bool states_on_host = false;  // optimizer states and masters; the update runs there
  // Measurements replace what the cluster's numbers predict: layers in layouts that is_measured, links of groups with
  // as many ranks. Null: nothing was.
  std::shared_ptr<const Profile> profile;
};

struct Layout {
  int tensor = 1, pipeline = 1, replicas = 1;
  std::string placement = "cluster";
  int microbatch_size = 1;
  int microbatches = 1;  // of a replica and a step, those of all accumulation steps
  std::string schedule = "interleaved";
  int chunks_per_stage = 1;     // of "interleaved_1f1b"
  int active_microbatches = 0;  // 0: what the schedule needs
  Recomputed recomputed = Recomputed::nothing;
  bool sequence_parallel = false;
  Offloaded offload = Offloaded::nothing;
  int sharded = 0;          // 1: optimizer states, 2: and gradients, 3: and weights
  int sharding_degree = 0;  // ranks that share one copy of what is sharded; 0: all replicas

  int world() const { return tensor * pipeline * replicas; }
  int shards() const { return sharded == 0 ? 1 : sharding_degree == 0 ? replicas : sharding_degree; }
  Mesh mesh() const { return {placement, replicas, pipeline, tensor}; }
  WorkShape work_shape(const Job& job) const;
  ScheduleChoice schedule_choice() const;
  bool operator==(const Layout&) const = default;
};

// What Profile::valid_for says of a layout.
std::map<std::string, std::string> layout_conditions(const Job& job, const Layout& layout);
// Whether the profile's layers are those of this layout.
bool is_measured(const Job& job, const Layout& layout);

// "D=2 P=4 T=8 cluster, 24 x 1 interleaved_1f1b v=3, each, sequence parallel, ZeRO-1": one line.
std::string to_string(const Layout& layout);

// Parameters of a layer on the tensor-parallel rank with most; tied ones too, since each use holds a copy.
int64_t local_parameters(const LayerSpec& layer, int tensor);

// Those of them that replicas share out.
int64_t shared_parameters(const Job& job, const Layout& layout, const LayerSpec& layer);

// Those of units that every T rank has whole, of whose gradient each has that of its own rows only: they are reduced
// over all holders of the stage.
int64_t parameters_of_own_rows(const LayerSpec& layer);

// Bytes that one rank of a stage passes on after this layer for a microbatch.
int64_t border_bytes(const LayerSpec& layer, const WorkShape& shape);

}  // namespace shardline

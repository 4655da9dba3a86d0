// What a step computes (Workload), the machines it runs on (Machines), and how the ranks share it (Layout).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/mesh.h"
#include "core/model/model_spec.h"
#include "core/numbers/number_types.h"
#include "optim/flat/flat_layout.h"
#include "optim/update/optimizer_options.h"
#include "partitioner/layout/cluster.h"
#include "partitioner/layout/profile.h"
#include "pipeline/activations/offload.h"
#include "pipeline/activations/recompute.h"
#include "pipeline/schedule/kinds/schedule_choice.h"

namespace shardline {

// How the ranks that share a copy gather values over several nodes: with the rings of a library that knows the nodes,
// with messages from every rank to every other, or in the two steps of core/comm/hierarchical_gather.h.
enum class GatherWay { rings, messages, two_steps };

// Properties of the training program. The defaults describe shardline, unless engine/plan/resolve.h sets a field;
// published results of other programs need other values.
struct Software {
  bool fused = true;               // attention and loss run in blocks (WorkShape::fused)
  bool scatter_gather = false;     // the T senders of a whole border send one part each, which the receivers gather
  bool overlap_reduction = true;   // gradients are reduced while the last backward passes run
  bool overlap_tensor = true;      // a linear's collectives over T overlap its products, if its backward is not split
  bool separate_addition = false;  // a separate sweep adds products to the gradient
  int gradient_bytes = 4;          // per element
  double optimizer_bytes = 8;      // state per parameter on average, without a master copy
  double extra_update_bytes = 0;   // per parameter, memory traffic of sweeps other than norm and update
  GatherWay gather_way = GatherWay::rings;
  bool own_ops = false;  // activations are counted by the layers themselves (LayerSpec::kept), not as in papers
};

// Half precision with fp32 masters and gradients, or fp32 only.
NumberTypes types_of(Precision precision);

// What one optimizer step computes, regardless of the ranks.
struct Workload {
  ModelSpec spec;  // made for the layout's sequence_parallel, if that matters
  int64_t sequence_length = 1;
  int64_t global_batch = 1;  // samples per optimizer step
  NumberTypes types = types_of(Precision::bf16);
  bool attention_in_fp32 = false;  // HalfOptions::attention_in_fp32
  OptimizerOptions optimizer;
  Software software;

  Precision precision() const;  // precision of products; float64, which only tests use, is priced as fp32
};

// The machines on which the step runs.
struct Machines {
  Cluster cluster;
  // Measurements that replace estimates from the cluster's numbers: for layers in layouts where is_measured is true,
  // and for links between the same number of ranks. Null: nothing was measured.
  std::shared_ptr<const Profile> profile;
};

// The maximum number of microbatches of a replica in a step, over all accumulation steps: schedules list each of them.
inline constexpr int kMostMicrobatchesOfStep = 1 << 20;
// The maximum number of tokens in a microbatch of a replica, in training and in evaluation.
inline constexpr int64_t kMostTokensOfMicrobatch = 1 << 27;

// How the ranks divide the step.
struct Layout {
  int tensor = 1, pipeline = 1, replicas = 1;
  Placement placement;
  int microbatch_size = 1;     // samples
  int microbatches = 1;        // per replica and step, over all accumulation steps
  int accumulation_steps = 1;  // a divisor of microbatches
  int loader_batches = 1;      // batches of the data loader in a global batch; see SampleOrderOptions
  int64_t eval_batch = 1;      // samples of a replica per evaluation step
  ScheduleSource schedule;
  int chunks_per_stage = 1;          // used by interleaved_1f1b
  int active_microbatches = 0;       // 0: as many as the schedule needs
  std::vector<Recompute> recompute;  // by layer of the model; empty: nothing
  OffloadOptions offload;
  bool sequence_parallel = false;
  Sharding sharding;             // its degree is a divisor of the replicas
  bool states_on_host = false;   // optimizer states and masters, which the host updates
  bool on_accelerators = false;  // the ranks compute on accelerators

  int world() const { return tensor * pipeline * replicas; }
  int microbatches_per_accumulation() const { return microbatches / accumulation_steps; }
  int64_t replica_batch() const { return int64_t{microbatch_size} * microbatches_per_accumulation(); }
  int64_t global_batch() const { return int64_t{microbatch_size} * microbatches * replicas; }
  // What replicas shard; none if only one replica shares each copy.
  Sharding::Level sharded() const { return sharding.degree > 1 ? sharding.level : Sharding::Level::none; }
  Mesh mesh() const { return {placement, replicas, pipeline, tensor}; }
  Recompute::What recomputed(size_t layer) const {
    return recompute.empty() ? Recompute::What::nothing : recompute[layer].what;
  }
  WorkShape work_shape(const Workload& workload) const;
  ScheduleChoice schedule_choice() const;
  bool operator==(const Layout&) const = default;
};

// An object with every field; reading it gives an equal layout.
void to_json(nlohmann::json& json, const Layout& layout);
void from_json(const nlohmann::json& json, Layout& layout);

// The schedule of a training step.
Schedule training_schedule(const Layout& layout);

// The chunk of the first layer with a backward pass.
int first_backward_chunk(const ModelSpec& spec, const std::vector<int>& chunk_of_layer);

// By layer of the model: recomputes each block separately, or all attention cores; empty for `nothing`.
std::vector<Recompute> recompute_blocks(const ModelSpec& spec, Recompute::What what);
// The recomputation strategies of the layout: "none", "each", "group_2, selective".
std::string recompute_text(const Layout& layout);
// Returns "none", or a value of smp_options.offload_scope: "checkpointed" or "all".
const char* scope_text(const OffloadOptions& offload);

// The conditions in Profile::valid_for that depend on the layout.
std::map<std::string, std::string> layout_conditions(const Workload& workload, const Layout& layout);
// Whether there is a profile whose layers were measured in this layout.
bool is_measured(const Workload& workload, const Profile* profile, const Layout& layout);

// One line: "D=2 P=4 T=8 cluster, 24 x 1 interleaved_1f1b v=3, recompute each, sequence parallel, ZeRO-1".
std::string to_string(const Layout& layout);

// Whether two layers are blocks with equal costs, provided that the same parts of them are recomputed.
bool alike(const LayerSpec& a, const LayerSpec& b);

// The number of a parameter's elements on the first tensor-parallel rank, which has the most.
int64_t local_elements(const ParamSpec& param, int tensor);

enum class Counted { all, trained };

// Parameters of a layer on the tensor-parallel rank with the most, including tied ones, since each use holds a copy.
int64_t local_parameters(const LayerSpec& layer, int tensor, Counted counted);

// How many of these parameters are sharded by the replicas.
int64_t shared_parameters(const Layout& layout, const LayerSpec& layer, Counted counted);

// Counts the trained parameters of units that every T rank holds whole but computes only for its own rows: their
// gradients are reduced over all holders of the stage.
int64_t parameters_of_own_rows(const LayerSpec& layer);

// Bytes that one rank of a stage sends for a microbatch after this layer.
int64_t border_bytes(const LayerSpec& layer, const WorkShape& shape);

}  // namespace shardline

// What a step computes (Workload), the machines it runs on, and one way to run it (Layout).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
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

// How the ranks that share a copy gather values over several nodes: by the rings of a library that knows the nodes, by
// messages from each rank to each, or in the two steps of core/comm/hierarchical_gather.h.
enum class GatherWay { rings, messages, two_steps };

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

// Half precision with fp32 masters and gradients, or fp32 alone.
NumberTypes types_of(Precision precision);

// What one optimizer step computes, whichever ranks do it.
struct Workload {
  ModelSpec spec;  // made for sequence_parallel as the layout says, where it makes a difference
  int64_t sequence_length = 1;
  int64_t global_batch = 1;  // samples of an optimizer step
  NumberTypes types = types_of(Precision::bf16);
  OptimizerOptions optimizer;
  Software software;

  Precision precision() const;  // that products run in; float64, which is for tests, is priced as fp32
};

// What it runs on.
struct Machines {
  Cluster cluster;
  // Measurements that replace what follows from the cluster's numbers: of layers in layouts that is_measured, of links
  // between as many ranks. Null: nothing was measured.
  std::shared_ptr<const Profile> profile;
};

// How it runs there.
struct Layout {
  int tensor = 1, pipeline = 1, replicas = 1;
  std::string placement = "cluster";
  int microbatch_size = 1;     // samples
  int microbatches = 1;        // of a replica and a step, those of all accumulation steps
  int accumulation_steps = 1;  // divides microbatches
  int loader_batches = 1;      // that make up a global batch, see SampleOrderOptions
  int64_t eval_batch = 1;      // samples of a replica and an evaluation step
  ScheduleSource schedule;
  int chunks_per_stage = 1;          // of interleaved_1f1b
  int active_microbatches = 0;       // 0: what the schedule needs
  std::vector<Recompute> recompute;  // by layer of the model; empty: nothing
  OffloadOptions offload;
  bool sequence_parallel = false;
  Sharding sharding;            // its degree divides the replicas
  bool states_on_host = false;  // optimizer states and masters; the update runs there

  int world() const { return tensor * pipeline * replicas; }
  int microbatches_per_accumulation() const { return microbatches / accumulation_steps; }
  int64_t replica_batch() const { return int64_t{microbatch_size} * microbatches_per_accumulation(); }
  int64_t global_batch() const { return int64_t{microbatch_size} * microbatches * replicas; }
  // What replicas share out; nothing among one.
  Sharding::Level sharded() const { return sharding.degree > 1 ? sharding.level : Sharding::Level::none; }
  Mesh mesh() const { return {placement, replicas, pipeline, tensor}; }
  Recompute::What recomputed(size_t layer) const {
    return recompute.empty() ? Recompute::What::nothing : recompute[layer].what;
  }
  WorkShape work_shape(const Workload& workload) const;
  ScheduleChoice schedule_choice() const;
  bool operator==(const Layout&) const = default;
};

// The schedule of a training step.
Schedule training_schedule(const Layout& layout);

// By layer of the model: every block by itself, or the attention cores of all; empty for `nothing`.
std::vector<Recompute> recompute_blocks(const ModelSpec& spec, Recompute::What what);
// The strategies that occur: "none", "each", "group_2, selective".
std::string recompute_text(const Layout& layout);
// "none", "checkpointed" or "all", as smp_options.offload_scope has them.
const char* scope_text(const OffloadOptions& offload);

// What Profile::valid_for says of a layout of `workload`.
std::map<std::string, std::string> layout_conditions(const Workload& workload, const Layout& layout);
// Whether there is a profile and its layers are those of this layout.
bool is_measured(const Workload& workload, const Profile* profile, const Layout& layout);

// "D=2 P=4 T=8 cluster, 24 x 1 interleaved_1f1b v=3, each, sequence parallel, ZeRO-1": one line.
std::string to_string(const Layout& layout);

// Two blocks that the planner need not distinguish, where as much of them is recomputed.
bool alike(const LayerSpec& a, const LayerSpec& b);

// Elements of a parameter on the first tensor-parallel rank, which has most.
int64_t local_elements(const ParamSpec& param, int tensor);

// Parameters of a layer on the tensor-parallel rank with most; tied ones too, since each use holds a copy.
int64_t local_parameters(const LayerSpec& layer, int tensor);

// Those of them that replicas share out.
int64_t shared_parameters(const Layout& layout, const LayerSpec& layer);

// Those of units that every T rank has whole, of whose gradient each has that of its own rows only: they are reduced
// over all holders of the stage.
int64_t parameters_of_own_rows(const LayerSpec& layer);

// Bytes that one rank of a stage passes on after this layer for a microbatch.
int64_t border_bytes(const LayerSpec& layer, const WorkShape& shape);

}  // namespace shardline

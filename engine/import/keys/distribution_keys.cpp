// The argument `distribution` of an estimator, and the parameters of the model parallel library.
#include <algorithm>

#include "core/error.h"
#include "engine/import/keys/values.h"
#include "engine/import/keys/vocabulary.h"

namespace shardline {
namespace {

using nlohmann::json;

Outcome data_parallel(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off");
  return draft.give("smp_options.ddp", true, given.name,
                    "replicas, one for each GPU; shardline's reductions take the place of the library's");
}

Outcome torch_distributed(const Given& given, Draft&) {
  return neutral(is_on(given.value) ? "each GPU gets a process in any case (mpi_options.processes_per_host)"
                                    : "is off");
}

Outcome model_parallel(const Given& given, Draft&) {
  return neutral(is_on(given.value) ? "the parameters determine what is enabled"
                                    : "is off: its parameters have no effect");
}

Outcome mpi(const Given& given, Draft&) {
  return neutral(is_on(given.value) ? "several ranks are always started with mpirun" : "is off");
}

ForeignKey other_distribution(const std::string& name, const std::string& what) {
  return refuses(name + ".enabled", what + "; use smdistributed, or processes_per_host of mpi");
}

// Version 2: the number of GPUs that share one copy of the model; 0 means all.
Outcome hybrid_shard_degree(const Given& given, Draft& draft) {
  const std::string target = "smp_options.sharded_data_parallel_degree";
  if (draft.integer("smp_options.tensor_parallel_degree", 1) > 1)
    draft.add("smp_options.prescaled_batch", true, "in version 2, the GPUs that share a layer read the same samples");
  if (value_for(json_integer(0), given.value) != 0) return draft.give(target, given.value, given.name);
  if (draft.replicas() == 0)
    return refused("0 means all GPUs, whose number the job does not state; give the degree, or --ranks N");
  return draft.give(target, draft.replicas(), given.name, "0: all replicas");
}

Outcome sm_activation_offloading(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off");
  draft.add("smp_options.offload_scope", "all", "sm_activation_offloading moves all activations");
  return draft.give("smp_options.offload_activations", true, given.name);
}

}  // namespace

const Vocabulary& model_parallel_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{
        .title = "Parameters of smdistributed.modelparallel",
        .introduction =
            "All parameters of versions 1.x are keys of `smp_options` under the same names "
            "([config](config.md)). These "
            "are those of version 2:",
        .keys = {
            reads("hybrid_shard_degree", "smp_options.sharded_data_parallel_degree",
                  "0: all replicas; with a tensor_parallel_degree above 1 also prescaled_batch", hybrid_shard_degree)
                .in_phase(2),
            reads("sm_activation_offloading", "smp_options.offload_activations, smp_options.offload_scope", "",
                  sm_activation_offloading),
            ignores("fsdp_cache_flush_warnings", "FSDP's cache is not used"),
            ignores("allow_empty_shards", "shards may always be empty"),
            maps("random_seed", "training.seed"),
            refuses("context_parallel_degree", "sequences are not split over GPUs here; leave it out", 1),
            refuses("expert_parallel_degree", "tensor parallelism divides experts by columns; leave it out", 1),
            refuses("moe_load_balancing", "the model determines how tokens are routed; leave it out"),
        }};
    all.own_keys = keys_of_section("smp_options");
    return all;
  }();
  return keys;
}

const Vocabulary& distribution_keys() {
  static const Vocabulary keys{
      .title = "distribution",
      .introduction = "The value of `distribution`, or of `parameters` in it, may also be the name of a JSON file.",
      .keys = {
          reads("smdistributed.modelparallel.enabled", "", "the parameters determine what is enabled", model_parallel),
          holds("smdistributed.modelparallel.parameters", model_parallel_keys),
          reads("smdistributed.dataparallel.enabled", "smp_options.ddp", "", data_parallel),
          maps("smdistributed.dataparallel.custom_mpi_options", "mpi_options.custom_mpi_options"),
          reads("mpi.enabled", "", "several ranks are always started with mpirun", mpi),
          maps("mpi.processes_per_host", "mpi_options.processes_per_host"),
          maps("mpi.custom_mpi_options", "mpi_options.custom_mpi_options",
               "split into words as a shell would, with its quotes"),
          reads("torch_distributed.enabled", "", "each GPU gets a process in any case", torch_distributed),
          reads("pytorchddp.enabled", "", "each GPU gets a process in any case", torch_distributed),
          maps("pytorchddp.custom_mpi_options", "mpi_options.custom_mpi_options"),
          other_distribution("parameter_server", "parameter servers are not supported"),
          other_distribution("multi_worker_mirrored_strategy", "TensorFlow's strategies are not supported"),
          other_distribution("pytorchxla", "this device is not supported"),
          refuses("instance_groups", "all hosts have the same number of ranks; leave the groups out"),
      }};
  return keys;
}

}  // namespace shardline

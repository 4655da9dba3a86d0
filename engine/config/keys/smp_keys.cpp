// The parameters of SageMaker's model parallel library, versions 1.x, and keys of our own.
#include "engine/config/keys/registry.h"
#include "partitioner/layout/cluster.h"
#include "pipeline/schedule/kinds/schedule_choice.h"

namespace shardline {
namespace {

constexpr double kMostRanks = 4096;  // along P or T

// Accepts a number or the word "auto".
Key with_auto(Key key) {
  key.type.choices = {{"auto"}};
  key.store = [store = key.store](Config& config, const nlohmann::json& value) {
    store(config, value == "auto" ? nlohmann::json(kAuto) : value);
  };
  key.load = [load = key.load](const Config& config) {
    const auto value = load(config);
    return value == kAuto ? nlohmann::json("auto") : value;
  };
  return key;
}

std::vector<JsonChoice> choices_of(const std::vector<std::string>& names) {
  std::vector<JsonChoice> choices;
  for (const auto& name : names) choices.push_back({name});
  return choices;
}

std::vector<JsonChoice> schedules() {
  std::vector<JsonChoice> choices = choices_of(schedule_names());
  choices.push_back({"*.csv"});
  choices.push_back({"*.json"});
  choices.push_back({"_only_forward", "use `shardline eval` to run forward only"});
  return choices;
}

std::vector<Key> layout_keys() {
  const auto smp = &Config::smp;
  using Smp = SmpOptions;
  return {
      with_auto(honoured("pipeline_parallel_degree", smp, &Smp::pipeline_parallel_degree, json_integer(1, kMostRanks),
                         "P: the number of pipeline stages."))
          .also({"partitions"}),
      with_auto(honoured("tensor_parallel_degree", smp, &Smp::tensor_parallel_degree, json_integer(1, kMostRanks),
                         "T: the number of ranks that share each layer.")),
      honoured("tensor_parallel_layers", smp, &Smp::tensor_parallel_layers, or_null(json_any()),
               "Ours: which units the T ranks split. A list such as `[{\"pattern\": \"h.[0-3].mlp\", \"split\": "
               "false}, ...]` with true, false (every rank holds the whole unit) or \"auto\" (whichever is "
               "faster, as predicted with `cluster` or `profile`). A [pattern](#patterns) must match the whole name of "
               "a unit "
               "(`embedding.wte`, `h.0.attn`, `h.0.mlp`, ..., `head.lm_head`) or of a module that contains units "
               "(`h.0`); later entries win. Other units are split if every rank gets a part (docs/planner.md)."),
      with_auto(honoured("microbatches", smp, &Smp::microbatches, json_integer(1, kMostMicrobatches),
                         "Number of pieces into which a replica's batch is cut; must divide the batch.")),
      honoured("active_microbatches", smp, &Smp::active_microbatches, json_integer(1, kMostMicrobatches),
               "Maximum number of microbatches in flight; unset: what the schedule needs (SMP: P + 2)."),
      honoured("pipeline", smp, &Smp::pipeline, json_choice(schedules()),
               "Schedule: `interleaved` is 1F1B, `simple` is all forwards, then all backwards; docs/schedules.md "
               "describes the others and the files for schedules of your own."),
      with_auto(honoured(
          "virtual_pipeline_degree", smp, &Smp::virtual_pipeline_degree, json_integer(1, kMostRanks),
          "Chunks of layers per stage with pipeline `interleaved_1f1b`; the other schedules determine it themselves.")),
      honoured("optimize", smp, &Smp::optimize, json_choice(words_of<Optimize>()),
               "`speed`: activations are replicated over T; `memory`: they are split over T (sequence parallelism)."),
      honoured(
          "placement_strategy", smp, &Smp::placement_strategy, json_choice(choices_of(placement_names())),
          "Order of the axes over ascending ranks; the right-most letter varies fastest. `cluster` is DPT, `spread` "
          "is TPD."),
      honoured("ddp", smp, &Smp::ddp, json_boolean(),
               "Data parallelism; unset: true if T or D is above 1. In this case, false is an error."),
      honoured("prescaled_batch", smp, &Smp::prescaled_batch, json_boolean(),
               "false: a replica processes T times per_device_train_batch_size samples; true: exactly that many."),
  };
}

std::vector<Key> partition_keys() {
  const auto smp = &Config::smp;
  using Smp = SmpOptions;
  return {
      honoured(
          "auto_partition", smp, &Smp::auto_partition, json_boolean(),
          "true: the planner places the layers so that the most expensive stage is as cheap as possible and, if "
          "possible, no stage exceeds its device's memory. For programs and traced modules, `train` first measures the "
          "layers, unless `profile` or `cluster` provides their speed (docs/planner.md). false: manual_partition and "
          "default_partition place them."),
      honoured("default_partition", smp, &Smp::default_partition, json_integer(0, kMostRanks),
               "With auto_partition false: the stage of layers that match no entry of manual_partition. Unset: every "
               "layer must match an entry."),
      honoured("manual_partition", smp, &Smp::manual_partition, or_null(json_any()),
               "Ours; with auto_partition false. The number of blocks per stage (or per chunk, if stages have "
               "several), as in `[8, 17, 17]`, with the embedding on the first and the head on the last stage; or "
               "stages by layer name, as in `[{\"layers\": \"h.[0-3]\", \"stage\": 0}, ...]`, where the first entry "
               "whose [pattern](#patterns) matches a layer, or a module that contains it (`encoder`), applies."),
      honoured("memory_weight", smp, &Smp::memory_weight, json_number(0, 1),
               "What the automatic partition balances: 0 means time, 1 means memory; values in between weight both, "
               "each as a share of the total. Unset: 0, because no stage exceeds its device's memory anyway, if that "
               "is possible. (SMP does not know the limit and uses 0.8, or 0.2 with optimize `speed`.)"),
      honoured("load_partition", smp, &Smp::load_partition, json_boolean(), "Place the layers as partition_file does."),
      honoured("partition_file", smp, &Smp::partition_file, json_text(),
               "The plan.json of an earlier run, or a file with its `stages`: "
               "`{\"stages\": [{\"chunks\": [[\"embedding\", \"h.0\"]]}, ...]}`."),
      no_effect("skip_tracing", json_boolean(), false, "models are never traced to partition them"),
      no_effect("use_times", json_boolean(), true,
                "measured times are used with `profile`, and for programs and traced modules"),
      no_effect("trace_device", json_choice({{"cpu"}, {"gpu"}}), "gpu",
                "models are never traced to partition them; `shardline profile` measures on `runtime.device`"),
      refused("contiguous", true, "TensorFlow only: require that stages are connected parts of the graph.",
              "leave it out: stages are always contiguous"),
      refused("horovod", false, "TensorFlow only: data parallelism through Horovod.", "use ddp"),
  };
}

std::vector<Key> memory_keys() {
  const auto smp = &Config::smp;
  using Smp = SmpOptions;
  const auto same = [](const nlohmann::json& value) { return value; };
  return {
      honoured("activation_checkpointing", smp, &Smp::activation_checkpointing, json_any(),
               "Which activations are recomputed in the backward pass: `none`; those of `each` block, of groups of N "
               "blocks (`group_N`) or of all blocks of a stage (`contiguous`), where only the input of the first block "
               "of a group is kept; those of the attention core (`selective`); or a list such as `[{\"layers\": "
               "\"h.[0-3]\", \"strategy\": \"each\"}, ...]`, where the first entry whose [pattern](#patterns) matches "
               "a block, or a module that contains it (`encoder`), applies."),
      shorthand(
          "checkpoint_attentions", json_boolean(), false, "smp_options.activation_checkpointing",
          [](const nlohmann::json& value) { return value == true ? nlohmann::json("selective") : nlohmann::json(); },
          "true means activation_checkpointing `selective`."),
      honoured("offload_activations", smp, &Smp::offload_activations, json_boolean(),
               "Activations (offload_scope selects which ones) are moved off the device right after the forward pass "
               "and back for the backward pass."),
      honoured("offload_scope", smp, &Smp::offload_scope, json_choice(words_of<OffloadScope>()),
               "What offload_activations moves. `checkpointed`: the inputs that recomputed blocks keep; this has an "
               "effect only with activation_checkpointing. `all`: also everything that other layers keep between "
               "forward and backward."),
      honoured("activation_loading_horizon", smp, &Smp::activation_loading_horizon, json_integer(1),
               "An activation is back on the device this many instructions of the schedule before the one that uses "
               "it. Activations that would have to come back immediately are not moved."),
      honoured("offload_path", smp, &Smp::offload_path, json_text(),
               "Existing directory for offloaded activations of CPU ranks; unset: output_dir. GPUs use host memory."),
      honoured("offload_optimizer_states", smp, &Smp::offload_optimizer_states, json_boolean(),
               "Ours, for GPUs: optimizer states and fp32 master weights are kept in host memory and updated there; "
               "gradients are copied to the host and values back while other layers are updated. CPU ranks have them "
               "in host memory anyway."),
      honoured("shard_optimizer_state", smp, &Smp::shard_optimizer_state, json_boolean(),
               "Each replica keeps a part of the optimizer state (ZeRO-1); updated values are gathered while the next "
               "forward pass runs."),
      honoured("shard_gradients", smp, &Smp::shard_gradients, json_boolean(),
               "With shard_optimizer_state: each replica also keeps only a part of the gradients (ZeRO-2), which costs "
               "one reduction per microbatch."),
      with_auto(honoured("sharded_data_parallel_degree", smp, &Smp::sharded_data_parallel_degree,
                         json_integer(1, Cluster::kMostDevices),
                         "Number of replicas that share one copy of weights, gradients and optimizer state (MiCS; "
                         "ZeRO-3 if it equals D); must divide D. Weights are gathered layer by layer for every pass. "
                         "`auto` chooses shard_optimizer_state and shard_gradients, too.")),
      honoured(
          "sdp_reduce_bucket_size", smp, &Smp::sdp_reduce_bucket_size, json_number(1),
          "With sharded_data_parallel_degree: if a layer's gradients have more elements than this, they are reduced "
          "before the backward pass of the next layer begins; smaller gradients are reduced while it runs."),
      honoured("sdp_param_persistence_threshold", smp, &Smp::sdp_param_persistence_threshold, json_number(0),
               "With sharded_data_parallel_degree: parameters with fewer elements are not sharded."),
      honoured("sdp_max_live_parameters", smp, &Smp::sdp_max_live_parameters, json_number(1),
               "With sharded_data_parallel_degree: the next layer is gathered ahead of its use if it and the current "
               "layer together have at most this many elements."),
      honoured("sdp_hierarchical_allgather", smp, &Smp::sdp_hierarchical_allgather, json_boolean(),
               "If the ranks that share a copy are on several hosts, sharded values are gathered in two steps: between "
               "hosts, then inside each host (docs/collectives.md). One step is used if hosts have different numbers "
               "of these ranks, and on GPUs, where NCCL chooses the algorithm."),
      shorthand("sdp_gradient_clipping", or_null(json_number(0)), nullptr, "training.max_grad_norm", same,
                "With sharded_data_parallel_degree: the same as training.max_grad_norm."),
      shorthand("fp16", json_boolean(), false, "training.fp16", same,
                "Train in float16 with loss scaling; the same as training.fp16.")
          .also({"fp16_params"}),
      shorthand("bf16", json_boolean(), false, "training.bf16", same, "Train in bfloat16; the same as training.bf16."),
  };
}

std::vector<Key> runtime_detail_keys() {
  return {
      honoured("ddp_dist_backend", &Config::smp, &SmpOptions::ddp_dist_backend, json_choice({{"auto"}, {"nccl"}}),
               "`nccl`: the run is refused unless ranks communicate through NCCL; needs ddp true. `auto`: as in "
               "runtime.communicator."),
      no_effect("ddp_port", or_null(json_integer(0, 65535)), nullptr, "ranks find each other through MPI"),
      no_effect("deterministic_server", json_boolean(), false, "the execution order is always fixed"),
      no_effect("delayed_parameter_initialization", json_boolean(), false,
                "each rank builds only its own part of the model"),
      no_effect("overlapping_allreduce", json_boolean(), true, "changes no numbers"),
      no_effect("_match_weights", json_boolean(), false, "split layers always have the model's own weights"),
      no_effect("_fp32_grad_accumulation", json_boolean(), false,
                "gradients are always accumulated in at least float32"),
      no_effect("static_mode", json_boolean(), false, "the schedule is always static"),
      no_effect("fast_mode", json_boolean(), false, "stages always send tensors directly to each other"),
  };
}

}  // namespace

std::vector<Key> smp_keys() {
  std::vector<Key> keys;
  for (const auto& group : {layout_keys(), partition_keys(), memory_keys(), runtime_detail_keys()})
    keys.insert(keys.end(), group.begin(), group.end());
  return keys;
}

}  // namespace shardline

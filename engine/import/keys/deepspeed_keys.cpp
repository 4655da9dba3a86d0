// The config of DeepSpeed, with the keys that transformers and accelerate pass on.
#include <cmath>
#include <string>

#include "core/error.h"
#include "engine/import/keys/values.h"
#include "engine/import/keys/vocabulary.h"

namespace shardline {
namespace {

using nlohmann::json;
using Keys = std::vector<ForeignKey>;

bool is_left_open(const Given& given) {
  return plain_text(given.value) == "auto";
}

// A key that may be "auto": the arguments of the script then determine it.
ForeignKey open_key(const std::string& name, const std::string& target, const std::string& note = "") {
  return reads(name, target, note, [=](const Given& given, Draft& draft) {
    if (is_left_open(given)) return neutral("the training arguments determine it");
    return draft.give(target, given.value, given.name);
  });
}

Outcome read_stage(const Given& given, Draft& draft) {
  const json stage = value_for(json_integer(0, 3), given.value);
  if (!json_integer(0, 3).accepts(stage)) return refused("must be a stage from 0 to 3");
  if (stage == 0) return neutral("nothing is sharded");
  if (stage == 3) {
    if (draft.replicas() == 0)
      return refused(
          "stage 3 shards everything over all processes, whose number the file does not state; give --ranks N");
    if (draft.replicas() == 1) return neutral("there is one replica");
    return draft.give("smp_options.sharded_data_parallel_degree", draft.replicas(), given.name, "all replicas");
  }
  const Outcome states = draft.give("smp_options.shard_optimizer_state", true, given.name);
  if (stage == 1 || states.fate == Fate::refused) return states;
  const Outcome gradients = draft.give("smp_options.shard_gradients", true, given.name);
  return gradients.fate == Fate::refused ? gradients
                                         : mapped_to("smp_options.shard_optimizer_state, smp_options.shard_gradients");
}

// A key that has an effect only in stage 3.
ForeignKey key_of_stage_3(const std::string& name, const std::string& target) {
  return reads("zero_optimization." + name, target, "in stage 3",
               [=](const Given& given, Draft& draft) {
                 if (!draft.has("smp_options.sharded_data_parallel_degree")) return neutral("is only used in stage 3");
                 if (is_left_open(given)) return neutral("has a default in shardline, too");
                 return draft.give(target, given.value, given.name);
               })
      .in_phase(3);
}

Outcome read_offload_of_states(const Given& given, Draft& draft) {
  const std::string device = plain_text(given.value);
  if (device == "none") return neutral("is off");
  if (device != "cpu") return refused("optimizer states can be offloaded only to the host's memory; use cpu");
  return draft.give("smp_options.offload_optimizer_states", true, given.name);
}

Outcome read_offload_of_weights(const Given& given, Draft&) {
  if (plain_text(given.value) == "none") return neutral("is off");
  return refused("weights stay on the devices; leave it out, and shard them over more replicas (stage 3)");
}

Outcome read_optimizer(const Given& given, Draft& draft) {
  const std::string type = plain_text(given.value);
  const json adam_w = given.at({"optimizer", "params", "adam_w_mode"});
  if (type == "AdamW" || (type == "Adam" && (adam_w.is_null() || is_on(adam_w))))
    return draft.give("training.optim", "adamw_torch", given.name,
                      type == "Adam" ? "DeepSpeed's Adam is AdamW unless adam_w_mode is false" : "");
  if (type == "Adam") return draft.give("training.optim", "adam", given.name);
  if (type == "SGD") return draft.give("training.optim", "sgd", given.name);
  return refused(cat("optimizer \"", type, "\" is not supported; use AdamW, Adam or SGD"));
}

Outcome read_betas(const Given& given, Draft& draft) {
  if (is_left_open(given)) return neutral("the training arguments determine it");
  if (!given.value.is_array() || given.value.size() != 2) return refused("must be two numbers");
  const Outcome first = draft.give("training.adam_beta1", given.value[0], given.name);
  if (first.fate == Fate::refused) return first;
  const Outcome second = draft.give("training.adam_beta2", given.value[1], given.name);
  return second.fate == Fate::refused ? second : mapped_to("training.adam_beta1, training.adam_beta2");
}

Outcome read_momentum(const Given& given, Draft& draft) {
  const json momentum = value_for(json_number(0), given.value);
  if (!momentum.is_number()) return refused("must be a number");
  return draft.give("training.optim_args", cat("momentum=", momentum.dump()), given.name);
}

bool is_true(const Draft& draft, const std::string& target) {
  return draft.has(target) && draft.value(target) == true;
}

// DeepSpeed's defaults for keys that its files often leave out.
constexpr double kRateOfWarmup = 0.001;  // warmup_max_lr, and lr of optimizers
constexpr int kStepsOfWarmup = 1000;     // warmup_num_steps
constexpr double kEndOfCosine = 0.0001;  // cos_min_ratio
constexpr double kClipping = 0;          // gradient_clipping: none
constexpr double kDecay = 0;             // weight_decay of optimizers
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
constexpr double kFirstLossScale = 65536;  // 2 ^ initial_scale_power
constexpr int kHysteresis = 2;

// Gives a key the value that DeepSpeed uses if `missing` is not given.
Outcome give_default(const std::string& missing, const std::string& target, const json& value, const Given& given,
                     Draft& draft) {
  Outcome outcome = draft.give(target, value, cat(given.name, " without ", missing));
  if (outcome.fate == Fate::refused)
    outcome.note = cat(missing, " is missing, which means ", value.dump(), " in DeepSpeed: ", outcome.note);
  return outcome;
}

// Where a cosine ends, as a share of the learning rate.
json end_of_cosine(const Given& given) {
  const json ratio = given.at({"scheduler", "params", "cos_min_ratio"});
  return ratio.is_null() ? json(kEndOfCosine) : value_for(json_number(0, 1), ratio);
}

Outcome read_schedule_type(const std::string& type, const Given& given, Draft& draft) {
  if (type == "WarmupDecayLR") return draft.give("training.lr_scheduler_type", "linear", given.name);
  if (type == "WarmupLR") return draft.give("training.lr_scheduler_type", "constant_with_warmup", given.name);
  if (type != "WarmupCosineLR")
    return refused(cat("schedule \"", type, "\" is not supported; use WarmupDecayLR, WarmupLR or WarmupCosineLR"));
  const json end = end_of_cosine(given);
  if (!json_number(0, 1).accepts(end)) return refused("cos_min_ratio must be a number from 0 to 1");
  if (end == 0) return draft.give("training.lr_scheduler_type", "cosine", given.name);
  const Outcome outcome = draft.give("training.lr_scheduler_type", "cosine_with_min_lr", given.name);
  if (outcome.fate == Fate::refused) return outcome;
  const Outcome kept = draft.give("training.lr_scheduler_kwargs.min_lr_rate", end, given.name);
  return kept.fate == Fate::refused
             ? kept
             : mapped_to("training.lr_scheduler_type, training.lr_scheduler_kwargs", cat("ends at ", end.dump(), " x"));
}

// It is read after the training arguments, which determine what is "auto".
Outcome read_schedule(const Given& given, Draft& draft) {
  const std::string type = plain_text(given.value);
  Outcome outcome = read_schedule_type(type, given, draft);
  if (outcome.fate == Fate::refused) return outcome;
  const auto is_missing = [&](const char* key) { return given.at({"scheduler", "params", key}).is_null(); };
  if (type != "WarmupCosineLR" && is_missing("warmup_max_lr")) {
    const Outcome rate = give_default("warmup_max_lr", "training.learning_rate", kRateOfWarmup, given, draft);
    if (rate.fate == Fate::refused) return rate;
    outcome.target += ", training.learning_rate";
  }
  if (is_missing("warmup_num_steps")) {
    const Outcome steps = give_default("warmup_num_steps", "training.warmup_steps", kStepsOfWarmup, given, draft);
    if (steps.fate == Fate::refused) return steps;
    outcome.target += ", training.warmup_steps";
  }
  const bool warms_up = draft.has("training.warmup_steps") && draft.value("training.warmup_steps") != 0;
  if (warms_up && is_missing("warmup_type"))
    return refused(
        "without scheduler.params.warmup_type, DeepSpeed warms up along a logarithm, but warm-up is linear here; "
        "set it to linear");
  return outcome;
}

Outcome read_end_of_cosine(const Given& given, Draft& draft) {
  if (plain_text(given.at({"scheduler", "type"})) != "WarmupCosineLR")
    return neutral("is only used with WarmupCosineLR");
  const json end = end_of_cosine(given);
  if (!json_number(0, 1).accepts(end)) return refused("must be a number from 0 to 1");
  if (end == 0) return neutral("a cosine ends at 0");
  return draft.give("training.lr_scheduler_kwargs.min_lr_rate", end, given.name);
}

Outcome read_warmup_type(const Given& given, Draft&) {
  if (plain_text(given.value) == "linear") return neutral("warm-up is linear");
  return refused("warm-up is linear here; set it to linear");
}

ForeignKey zero_or_auto(const std::string& name, const std::string& advice) {
  return reads(name, "", "0; other values are refused", [=](const Given& given, Draft&) {
    if (is_left_open(given) || value_for(json_number(0), given.value) == 0) return neutral("this is always done");
    return refused(advice);
  });
}

Outcome read_loss_scale(const Given& given, Draft& draft) {
  const json scale = value_for(json_number(0), given.value);
  if (!is_true(draft, "training.fp16")) return neutral("fp16 is not on");
  if (is_left_open(given) || scale == 0) return neutral("0: the scale is dynamic");
  return draft.give("training.static_loss_scale", scale, given.name);
}

// An argument of the dynamic loss scale, which counts only if the scale is dynamic.
ForeignKey loss_scale_key(const std::string& name, const std::string& argument, const std::string& note = "") {
  return reads("fp16." + name, "training.dynamic_loss_args." + argument, note,
               [=](const Given& given, Draft& draft) {
                 if (draft.has("training.static_loss_scale")) return neutral("the scale is static");
                 if (!is_true(draft, "training.fp16")) return neutral("fp16 is not on");
                 if (is_left_open(given)) return neutral("has a default in shardline, too");
                 json value = value_for(json_any(), given.value);
                 if (argument == "init_scale" && !json_integer(0, 100).accepts(value))
                   return refused("must be a power of 2, a number from 0 to 100");
                 if (argument == "init_scale") value = std::ldexp(1.0, value.get<int>());
                 return draft.give("training.dynamic_loss_args." + argument, value, given.name, note);
               })
      .in_phase(2);
}

ForeignKey switch_key(const std::string& name, const std::string& target) {
  return reads(name + ".enabled", target, "", [=](const Given& given, Draft& draft) {
    if (is_left_open(given)) return neutral("the training arguments determine it");
    return is_on(given.value) ? draft.give(target, true, given.name) : neutral("is off");
  });
}

Keys keys_of_the_step() {
  const std::string scale = "half precision works the same in any case";
  return {
      open_key("train_batch_size", "training.global_batch_size"),
      open_key("train_micro_batch_size_per_gpu", "training.per_device_train_batch_size"),
      open_key("gradient_accumulation_steps", "training.gradient_accumulation_steps"),
      open_key("gradient_clipping", "training.max_grad_norm"),
      reads("optimizer.type", "training.optim", "AdamW, Adam, SGD", read_optimizer),
      open_key("optimizer.params.lr", "training.learning_rate"),
      open_key("optimizer.params.eps", "training.adam_epsilon"),
      open_key("optimizer.params.weight_decay", "training.weight_decay"),
      reads("optimizer.params.betas", "training.adam_beta1, training.adam_beta2", "", read_betas),
      reads("optimizer.params.momentum", "training.optim_args", "", read_momentum),
      ignores("optimizer.params.torch_adam", "there is one implementation of Adam here"),
      ignores("optimizer.params.adam_w_mode", "optimizer.type determines it"),
      ignores("optimizer.params.fused", "changes no numbers"),
      reads("scheduler.type", "training.lr_scheduler_type, .lr_scheduler_kwargs, .learning_rate, .warmup_steps",
            "WarmupDecayLR, WarmupLR (without warmup_max_lr: 0.001), WarmupCosineLR; without warmup_num_steps: 1000",
            read_schedule)
          .in_phase(3),
      zero_or_auto("scheduler.params.warmup_min_ratio", "warm-up starts at 0 here; set it to 0"),
      reads("scheduler.params.cos_min_ratio", "training.lr_scheduler_kwargs.min_lr_rate", "0.0001 if it is missing",
            read_end_of_cosine)
          .in_phase(4),
      zero_or_auto("scheduler.params.warmup_min_lr", "warm-up starts at 0 here; set it to 0"),
      open_key("scheduler.params.warmup_max_lr", "training.learning_rate"),
      open_key("scheduler.params.warmup_num_steps", "training.warmup_steps"),
      open_key("scheduler.params.total_num_steps", "training.max_steps"),
      reads("scheduler.params.warmup_type", "", "linear; refused if it is missing, unless nothing warms up",
            read_warmup_type),
      ignores("scheduler.params.last_batch_iteration", "taken from the checkpoint"),
      switch_key("fp16", "training.fp16"),
      reads("fp16.loss_scale", "training.static_loss_scale", "0: dynamic", read_loss_scale).in_phase(1),
      loss_scale_key("initial_scale_power", "init_scale", "2 to this power"),
      loss_scale_key("loss_scale_window", "scale_window"),
      loss_scale_key("hysteresis", "delayed_shift"),
      loss_scale_key("consecutive_hysteresis", "consecutive_hysteresis"),
      loss_scale_key("min_loss_scale", "min_scale"),
      ignores("fp16.auto_cast", scale),
      refuses("fp16.fp16_master_weights_and_grads", "master weights are always in fp32; leave it out"),
      switch_key("bf16", "training.bf16"),
      ignores("bf16.auto_cast", scale),
      ignores("bf16.immediate_grad_update", "changes no numbers"),
      switch_key("bfloat16", "training.bf16"),
      refuses("amp.enabled", "use fp16 or bf16"),
      ignores("amp.opt_level", "amp is refused"),
      refuses("data_types.grad_accum_dtype", "gradients are accumulated in fp32; leave it out", "fp32"),
      ignores("communication_data_type", "gradients are reduced in fp32"),
      ignores("prescale_gradients", "changes numbers by rounding only"),
      ignores("gradient_predivide_factor", "changes numbers by rounding only"),
      ignores("sparse_gradients", "gradients of embeddings are dense"),
      maps("seed", "training.seed"),
      ignores("gradient_accumulation_dtype", "gradients are accumulated in fp32"),
  };
}

Keys keys_of_sharding() {
  const std::string zero = "zero_optimization.";
  Keys keys = {
      reads(zero + "stage", "smp_options.shard_optimizer_state, .shard_gradients, .sharded_data_parallel_degree",
            "1: states; 2: and gradients; 3: the degree is the number of replicas", read_stage)
          .in_phase(2),
      reads(zero + "offload_optimizer.device", "smp_options.offload_optimizer_states", "cpu", read_offload_of_states),
      reads(zero + "offload_param.device", "", "none; others are refused", read_offload_of_weights),
      refuses(zero + "cpu_offload", "give offload_optimizer.device cpu"),
      key_of_stage_3("reduce_bucket_size", "smp_options.sdp_reduce_bucket_size"),
      key_of_stage_3("stage3_param_persistence_threshold", "smp_options.sdp_param_persistence_threshold"),
      key_of_stage_3("stage3_max_live_parameters", "smp_options.sdp_max_live_parameters"),
      key_of_stage_3("mics_hierarchical_params_gather", "smp_options.sdp_hierarchical_allgather"),
      reads(zero + "mics_shard_size", "smp_options.sharded_data_parallel_degree", "",
            [](const Given& given, Draft& draft) {
              if (value_for(json_integer(-1), given.value) == -1) return neutral("is off");
              return draft.give("smp_options.sharded_data_parallel_degree", given.value, given.name);
            })
          .in_phase(2),
      refuses(zero + "zero_quantized_weights", "weights are sent as they are; leave it out"),
      refuses(zero + "zero_quantized_gradients", "gradients are sent as they are; leave it out"),
      refuses(zero + "zero_quantized_nontrainable_weights", "weights are sent as they are; leave it out"),
      ignores(zero + "zero_hpz_partition_size", "sdp_hierarchical_allgather gathers between hosts, then inside each"),
  };
  for (const char* name : {"pin_memory", "nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "fast_init",
                           "pipeline", "pipeline_read", "pipeline_write", "ratio"})
    for (const char* part : {"offload_optimizer.", "offload_param."})
      keys.push_back(ignores(zero + part + name, "the device determines whether it is used"));
  for (const char* name :
       {"allgather_partitions", "allgather_bucket_size", "overlap_comm", "reduce_scatter", "contiguous_gradients",
        "sub_group_size", "round_robin_gradients", "stage3_prefetch_bucket_size", "stage3_max_reuse_distance",
        "param_persistence_threshold", "model_persistence_threshold", "prefetch_bucket_size", "max_live_parameters",
        "max_reuse_distance", "memory_efficient_linear", "use_multi_rank_bucket_allreduce",
        "stage3_module_granularity_threshold"})
    keys.push_back(ignores(zero + name, "shardline has its own order of messages"));
  for (const char* name : {"stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
                           "gather_16bit_weights_on_model_save", "load_from_fp32_weights", "elastic_checkpoint",
                           "ignore_unused_parameters", "legacy_stage1"})
    keys.push_back(ignores(zero + name, "checkpoints do not depend on the layout and have one format"));
  return keys;
}

// logging_steps, which also determines when lines are printed, takes precedence: the training arguments are read first.
Outcome read_steps_per_print(const Given& given, Draft& draft) {
  if (draft.has("training.logging_steps")) return neutral("logging_steps is given");
  return draft.give("training.logging_steps", given.value, given.name);
}

Outcome read_recompute(const Given& given, Draft& draft) {
  return neutral(draft.has("smp_options.activation_checkpointing")
                     ? "smp_options.activation_checkpointing says what is recomputed"
                     : "the model says what is recomputed: gradient_checkpointing");
}

Keys other_keys() {
  Keys keys = {
      switch_key("tensorboard", "training.report_to"),
      refuses("wandb.enabled", "use tensorboard; trackers such as W&B can import its events"),
      refuses("comet.enabled", "use tensorboard; trackers can import its events"),
      reads("steps_per_print", "training.logging_steps", "unless that is given", read_steps_per_print).in_phase(1),
      maps("dataloader_drop_last", "training.dataloader_drop_last"),
      refuses("sparse_attention", "leave it out"),
      refuses("compression_training", "leave it out"),
      refuses("curriculum_learning.enabled", "leave it out"),
      refuses("data_efficiency.enabled", "leave it out"),
      refuses("elasticity.enabled", "use mpi_options.elastic"),
      refuses("progressive_layer_drop.enabled", "leave it out"),
      refuses("eigenvalue.enabled", "leave it out"),
      refuses("quantize_training.enabled", "leave it out"),
      reads("activation_checkpointing.cpu_checkpointing", "smp_options.offload_activations", "",
            [](const Given& given, Draft& draft) {
              return is_on(given.value) ? draft.give("smp_options.offload_activations", true, given.name)
                                        : neutral("is off");
            }),
  };
  keys[0].read = [](const Given& given, Draft& draft) {
    return is_on(given.value) ? draft.give("training.report_to", "tensorboard", given.name) : neutral("is off");
  };
  for (const char* name : {"partition_activations", "contiguous_memory_optimization", "number_checkpoints",
                           "synchronize_checkpoint_boundary", "profile"})
    keys.push_back(reads(std::string("activation_checkpointing.") + name, "",
                         "the model or smp_options.activation_checkpointing determines what is recomputed",
                         read_recompute));
  const auto add = [&](const std::string& reason, const std::vector<const char*>& names) {
    for (const char* name : names) keys.push_back(ignores(name, reason));
  };
  add("output_dir has the events", {"tensorboard.output_path", "tensorboard.job_name"});
  add("metrics.jsonl has all numbers of a run", {"csv_monitor", "wall_clock_breakdown", "memory_breakdown",
                                                 "dump_state", "flops_profiler", "comms_logger", "monitor_config"});
  add("shardline has its own implementation", {"aio", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
                                               "autotuning", "checkpoint", "disable_allgather", "compile", "timers"});
  add("only used if it is enabled", {"wandb.group", "wandb.team", "wandb.project", "comet.project", "comet.workspace"});
  return keys;
}

// DeepSpeed's defaults for keys that its file leaves out, if shardline's defaults differ.
void add_deepspeed_defaults(const json& root, Draft& draft) {
  const std::string reason = "what DeepSpeed does without ";
  const auto require = [&](const std::string& missing, const char* target, double value) {
    draft.require(target, value,
                  cat("DeepSpeed's config has no ", missing, ", which means ", json(value).dump(),
                      " whatever the arguments say; give the value there, or leave this out"));
  };
  if (!root.contains("gradient_clipping")) {
    require("gradient_clipping", "training.max_grad_norm", kClipping);
    draft.add("training.max_grad_norm", kClipping, reason + "gradient_clipping");
  }
  const auto lacks = [&](const char* name) {
    return root.contains("optimizer") && !root.contains(json::json_pointer("/optimizer/params") / name);
  };
  if (lacks("lr")) {
    if (!root.contains("scheduler")) require("optimizer.params.lr", "training.learning_rate", kRateOfWarmup);
    draft.add("training.learning_rate", kRateOfWarmup, reason + "optimizer.params.lr");
  }
  if (lacks("weight_decay")) require("optimizer.params.weight_decay", "training.weight_decay", kDecay);
  const bool is_adam = draft.has("training.optim") && draft.value("training.optim") != "sgd";
  if (is_adam && lacks("eps")) require("optimizer.params.eps", "training.adam_epsilon", kEpsilon);
  if (is_adam && lacks("betas")) {
    require("optimizer.params.betas", "training.adam_beta1", kBeta1);
    require("optimizer.params.betas", "training.adam_beta2", kBeta2);
  }
  const bool scales = is_true(draft, "training.fp16") && !draft.has("training.static_loss_scale") &&
                      !draft.has("training.dynamic_loss_args");
  if (!scales) return;
  draft.add("training.dynamic_loss_args.init_scale", kFirstLossScale, reason + "fp16.initial_scale_power");
  draft.add("training.dynamic_loss_args.delayed_shift", kHysteresis, reason + "fp16.hysteresis");
}

}  // namespace

const Vocabulary& deepspeed_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{
        .title = "DeepSpeed",
        .introduction =
            "`\"auto\"` leaves a key to the training arguments. Keys that are missing have DeepSpeed's defaults: no "
            "clipping without `gradient_clipping`, a learning rate of 0.001 with an `optimizer` that states none, and "
            "with fp16 a first loss scale of 2^16 and a hysteresis of 2.",
        .keys = {}};
    all.add_defaults = add_deepspeed_defaults;
    for (const auto& group : {keys_of_the_step(), keys_of_sharding(), other_keys()})
      all.keys.insert(all.keys.end(), group.begin(), group.end());
    return all;
  }();
  return keys;
}

}  // namespace shardline

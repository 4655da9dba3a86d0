// The config that `accelerate config` writes, and the options of launchers before a script.
#include <algorithm>
#include <map>
#include <string>

#include "core/error.h"
#include "engine/import/keys/job_facts.h"
#include "engine/import/keys/values.h"
#include "engine/import/keys/vocabulary.h"

namespace shardline {
namespace {

using nlohmann::json;
using Keys = std::vector<ForeignKey>;

Outcome read_precision(const Given& given, Draft& draft) {
  const std::string precision = plain_text(given.value);
  if (precision == "no" || precision == "fp32" || is_off(given.value)) return neutral("fp32 is the default");
  if (precision != "fp16" && precision != "bf16")
    return refused(cat("precision \"", precision, "\" is not supported; use bf16 or fp16"));
  return draft.give("training." + precision, true, given.name);
}

// A key that a config of DeepSpeed has, too.
ForeignKey like_deepspeed(const std::string& name, const std::vector<std::string>& steps) {
  ForeignKey key = *deepspeed_keys().find(steps);
  key.name = name;
  return key;
}

Outcome shard_all(const Given& given, Draft& draft) {
  if (draft.replicas() == 0)
    return refused("shards everything over all processes, whose number the job does not state; give --ranks N");
  if (draft.replicas() == 1) return neutral("there is one replica");
  return draft.give("smp_options.sharded_data_parallel_degree", draft.replicas(), given.name, "all replicas");
}

Outcome shard_gradients(const Given& given, Draft& draft) {
  const Outcome states = draft.give("smp_options.shard_optimizer_state", true, given.name);
  if (states.fate == Fate::refused) return states;
  const Outcome gradients = draft.give("smp_options.shard_gradients", true, given.name);
  return gradients.fate == Fate::refused ? gradients
                                         : mapped_to("smp_options.shard_optimizer_state, smp_options.shard_gradients");
}

Outcome read_fsdp_strategy(const Given& given, Draft& draft) {
  return shard_as_fsdp(plain_text(given.value), given, draft);
}

Outcome read_reshard(const Given& given, Draft& draft) {
  if (const auto word = plain_text(given.value); !is_on(given.value) && !is_off(given.value) && word != "FULL_SHARD")
    return read_fsdp_strategy(given, draft);
  return is_off(given.value) ? shard_gradients(given, draft) : shard_all(given, draft);
}

Outcome read_recompute_of_fsdp(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off");
  return draft.give("smp_options.activation_checkpointing", "each", given.name);
}

Outcome read_selective(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off");
  return draft.give("smp_options.activation_checkpointing", "selective", given.name);
}

Outcome read_sequence_parallelism(const Given& given, Draft& draft) {
  return draft.give("smp_options.optimize", is_on(given.value) ? "memory" : "speed", given.name,
                    "true: memory; false: speed");
}

// Whether an option of the command is on.
bool asks_for(const json& options, const char* name) {
  return std::ranges::any_of(options.items(),
                             [&](const auto& item) { return plain_name(item.key()) == name && is_on(item.value()); });
}

bool has_option(const json& options, const std::vector<const char*>& names) {
  return std::ranges::any_of(options.items(), [&](const auto& item) {
    return std::ranges::find(names, plain_name(item.key())) != names.end();
  });
}

// The options --use_fsdp and --use_deepspeed, whose own defaults shard. They are read after the options and the file
// that say how to shard.
Outcome shard_as_usual(const Given& given, Draft& draft, const std::vector<const char*>& saying,
                       Outcome (*shard)(const Given&, Draft&)) {
  if (!is_on(given.value)) return neutral("is off");
  if (has_option(given.root, saying)) return neutral("other options determine what is sharded");
  if (draft.has("smp_options.sharded_data_parallel_degree") || draft.has("smp_options.shard_optimizer_state"))
    return neutral("config_file determines what is sharded");
  if (has_option(given.root, {"config_file"}))
    return refused("config_file shards nothing; leave this out, or state what is sharded in the file");
  return shard(given, draft);
}

Outcome read_use_fsdp(const Given& given, Draft& draft) {
  return shard_as_usual(given, draft, {"fsdp_sharding_strategy", "fsdp_reshard_after_forward"}, shard_all);
}

Outcome read_use_deepspeed(const Given& given, Draft& draft) {
  return shard_as_usual(given, draft, {"zero_stage", "deepspeed_config_file"}, shard_gradients);
}

// Without a number of processes, accelerate and DeepSpeed use all GPUs, although the command does not specify this.
Outcome read_words(const Given& given, Draft& draft) {
  std::string note = "shardline starts its ranks itself";
  const json words = given.value.is_array() ? given.value : json::array();
  const auto is_one_of = [&](const std::vector<std::string>& names) {
    return std::ranges::any_of(
        words, [&](const json& word) { return std::ranges::find(names, plain_text(word)) != names.end(); });
  };
  if (std::ranges::any_of(words, [](const json& word) { return plain_text(word).find('=') != std::string::npos; }))
    note += "; set the environment variables where shardline is started";
  if (is_one_of({"accelerate", "deepspeed"}) && draft.processes_per_host() == 0)
    note += "; this launcher would use all GPUs: for more than one process, give --ranks N";
  return neutral(note);
}

// In Megatron, the batch size of a replica does not depend on how many ranks its layers are split across.
Outcome read_tensor_degree(const Given& given, Draft& draft) {
  const Outcome outcome = draft.give("smp_options.tensor_parallel_degree", given.value, given.name);
  if (outcome.fate == Fate::mapped && draft.integer("smp_options.tensor_parallel_degree", 1) > 1)
    draft.add("smp_options.prescaled_batch", true, "Megatron does not multiply batches by the tensor-parallel degree");
  return outcome;
}

Outcome read_gpu_ids(const Given& given, Draft&) {
  if (is_off(given.value) || plain_text(given.value) == "all") return neutral("ranks use the available GPUs");
  return refused("ranks use the available GPUs; leave this key out, and set CUDA_VISIBLE_DEVICES");
}

Keys keys_of_fsdp() {
  const std::string fsdp = "fsdp_config.";
  Keys keys = {
      reads(fsdp + "fsdp_sharding_strategy",
            "smp_options.sharded_data_parallel_degree, .shard_optimizer_state, .shard_gradients",
            "FULL_SHARD: all replicas; SHARD_GRAD_OP: states and gradients; HYBRID_SHARD: those of a host",
            read_fsdp_strategy)
          .in_phase(2),
      reads(fsdp + "fsdp_reshard_after_forward",
            "smp_options.sharded_data_parallel_degree, .shard_optimizer_state, .shard_gradients",
            "true: as FULL_SHARD; false: as SHARD_GRAD_OP", read_reshard)
          .in_phase(2),
      reads(fsdp + "fsdp_activation_checkpointing", "smp_options.activation_checkpointing", "each",
            read_recompute_of_fsdp),
      refuses(fsdp + "fsdp_offload_params", "weights stay on the devices; leave it out"),
  };
  for (const char* name :
       {"fsdp_auto_wrap_policy", "fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params", "fsdp_backward_prefetch",
        "fsdp_backward_prefetch_policy", "fsdp_forward_prefetch", "fsdp_use_orig_params", "fsdp_version"})
    keys.push_back(ignores(fsdp + name, "layers are gathered one after the other, ahead of their use"));
  for (const char* name : {"fsdp_state_dict_type", "fsdp_sync_module_states", "fsdp_cpu_ram_efficient_loading"})
    keys.push_back(ignores(fsdp + name, "checkpoints have no layout here; each rank reads its part"));
  return keys;
}

Keys keys_of_deepspeed() {
  const std::string at = "deepspeed_config.";
  Keys keys = {
      holds(at + "deepspeed_config_file", deepspeed_keys, "the name of its file"),
      like_deepspeed(at + "zero_stage", {"zero_optimization", "stage"}),
      like_deepspeed(at + "gradient_accumulation_steps", {"gradient_accumulation_steps"}),
      like_deepspeed(at + "gradient_clipping", {"gradient_clipping"}),
      like_deepspeed(at + "offload_optimizer_device", {"zero_optimization", "offload_optimizer", "device"}),
      like_deepspeed(at + "offload_param_device", {"zero_optimization", "offload_param", "device"}),
      refuses(at + "deepspeed_moe_layer_cls_names", "layers with experts need no setting; leave it out"),
  };
  for (const char* name : {"zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher",
                           "offload_optimizer_nvme_path", "offload_param_nvme_path"})
    keys.push_back(ignores(at + name, "shardline has its own implementation"));
  keys.push_back(refuses(at + "deepspeed_hostfile", "name the machines with --hosts A,B"));
  keys.push_back(refuses(at + "deepspeed_inclusion_filter", "name the machines with --hosts A,B"));
  keys.push_back(refuses(at + "deepspeed_exclusion_filter", "name the machines with --hosts A,B"));
  return keys;
}

Keys keys_of_megatron() {
  const std::string at = "megatron_lm_config.megatron_lm_";
  return {
      reads(at + "tp_degree", "smp_options.tensor_parallel_degree", "above 1: with prescaled_batch",
            read_tensor_degree),
      maps(at + "pp_degree", "smp_options.pipeline_parallel_degree"),
      maps(at + "num_micro_batches", "training.gradient_accumulation_steps",
           "each microbatch has per_device_train_batch_size samples"),
      maps(at + "gradient_clipping", "training.max_grad_norm"),
      reads(at + "recompute_activations", "smp_options.activation_checkpointing", "selective", read_selective),
      reads(at + "sequence_parallelism", "smp_options.optimize", "true: memory; false: speed",
            read_sequence_parallelism),
      maps(at + "use_distributed_optimizer", "smp_options.shard_optimizer_state"),
  };
}

Keys keys_of_machines() {
  const std::string ranks = "ranks find each other through MPI";
  return {
      reads_processes("num_processes"),
      reads_machines("num_machines"),
      reads("mixed_precision", "training.fp16, training.bf16", "", read_precision),
      maps("use_cpu", "training.use_cpu"),
      reads("gpu_ids", "", "all; others are refused", read_gpu_ids),
      refuses("downcast_bf16", "this device is not supported", "no"),
      ignores("machine_rank", ranks),
      ignores("main_process_ip", ranks),
      ignores("main_process_port", ranks),
      ignores("rdzv_backend", ranks),
      ignores("same_network", ranks),
  };
}

// Whether the key is a section that distributed_type, if given, does not choose.
bool is_of_other_type(const json& root, const std::string& key) {
  static const std::map<std::string, std::string> types = {
      {"fsdp_config", "FSDP"}, {"deepspeed_config", "DEEPSPEED"}, {"megatron_lm_config", "MEGATRON_LM"}};
  const auto type = types.find(key);
  return type != types.end() && root.contains("distributed_type") &&
         plain_text(root["distributed_type"]) != type->second;
}

// Whether the option belongs to a section that neither the command nor its file chooses.
bool is_of_other_launch(const json& root, const std::string& key) {
  const std::string name = plain_name(key);
  if (has_option(root, {"config_file"})) return false;
  if (name.starts_with("fsdp_")) return !asks_for(root, "use_fsdp");
  if (name.starts_with("megatron_lm_")) return !asks_for(root, "use_megatron_lm");
  static const Keys of_deepspeed = keys_of_deepspeed();
  return std::ranges::any_of(of_deepspeed, [&](const ForeignKey& one) { return one.name.ends_with('.' + name); }) &&
         !asks_for(root, "use_deepspeed");
}

// Without a file of DeepSpeed, accelerate makes one, which leaves the loss scale to DeepSpeed, but clips.
void add_defaults_of_plugin(Draft& draft) {
  deepspeed_keys().add_defaults({{"gradient_clipping", "auto"}}, draft);
  draft.add("training.max_grad_norm", 1, "what accelerate does without gradient_clipping");
}

void add_defaults_of_launcher(const json& root, Draft& draft) {
  if (asks_for(root, "use_deepspeed") && !has_option(root, {"config_file", "deepspeed_config_file"}))
    add_defaults_of_plugin(draft);
}

void add_defaults_of_deepspeed(const json& root, Draft& draft) {
  const json config = root.value("deepspeed_config", json());
  if (!config.is_object() || config.contains("deepspeed_config_file") || is_of_other_type(root, "deepspeed_config"))
    return;
  add_defaults_of_plugin(draft);
}

}  // namespace

const Vocabulary& accelerate_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{
        .title = "accelerate", .introduction = "The YAML (or JSON) file that `accelerate config` writes.", .keys = {}};
    for (const auto& group : {keys_of_machines(), keys_of_fsdp(), keys_of_deepspeed(), keys_of_megatron()})
      all.keys.insert(all.keys.end(), group.begin(), group.end());
    const auto add = [&](const std::string& reason, const std::vector<const char*>& names) {
      for (const char* name : names) all.keys.push_back(ignores(name, reason));
    };
    all.is_unused = is_of_other_type;
    all.add_defaults = add_defaults_of_deepspeed;
    add("determines which of the sections below is used", {"distributed_type"});
    add("the keys below it determine what is enabled", {"compute_environment"});
    add("there is no Python code to run or to compile", {"main_training_function", "dynamo_backend", "dynamo_config",
                                                         "debug", "ipex_config", "commands", "command_file"});
    add("ranks and threads are bound by mpirun (mpi_options.custom_mpi_options)", {"enable_cpu_affinity"});
    add("this device is not supported", {"tpu_env", "tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo"});
    add("name the machines with --hosts", {"mpirun_config"});
    all.keys.push_back(refuses("fp8_config", "use bf16"));
    all.keys.push_back(refuses("parallelism_config", "give the degrees in smp_options"));
    return all;
  }();
  return keys;
}

Outcome shard_as_fsdp(const std::string& strategy, const Given& given, Draft& draft) {
  if (strategy == "FULL_SHARD" || strategy == "1") return shard_all(given, draft);
  if (strategy == "SHARD_GRAD_OP" || strategy == "2") return shard_gradients(given, draft);
  if (strategy == "NO_SHARD" || strategy == "3") return neutral("nothing is sharded");
  if (strategy == "HYBRID_SHARD" || strategy == "4") {
    const int64_t of_host = draft.processes_per_host();
    if (of_host <= 1)
      return refused("shards over the processes of a host, whose number the job does not state; give --ranks N");
    return draft.give("smp_options.sharded_data_parallel_degree", of_host, given.name, "the processes of a host");
  }
  return refused(cat("strategy \"", strategy, "\" is not supported; use FULL_SHARD, SHARD_GRAD_OP or HYBRID_SHARD"));
}

const Vocabulary& fsdp_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{.title = "fsdp_config",
                   .introduction =
                       "The argument `fsdp_config` beside `fsdp`, as an object or the name of a file. Names "
                       "may begin with `fsdp_`.",
                   .keys = {}};
    for (ForeignKey key : keys_of_fsdp()) {
      const std::string name = key.name.substr(std::string("fsdp_config.fsdp_").size());
      if (name == "sharding_strategy") continue;  // the argument `fsdp` states it
      if (name == "reshard_after_forward") key = refuses("", "give shard_grad_op as the argument fsdp instead", true);
      key.name = name;
      all.keys.push_back(key);
      key.name = "fsdp_" + name;
      all.own_keys.push_back(key);
    }
    all.keys.push_back(ignores("limit_all_gathers", "layers are gathered one after the other, ahead of their use"));
    all.keys.push_back(refuses("xla", "this device is not supported; leave it out"));
    all.keys.push_back(ignores("xla_fsdp_v2", "only used with xla"));
    all.keys.push_back(ignores("xla_fsdp_settings", "only used with xla"));
    all.keys.push_back(ignores("xla_fsdp_grad_ckpt", "only used with xla"));
    return all;
  }();
  return keys;
}

const Vocabulary& launcher_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{
        .title = "Launchers",
        .introduction = "Options of `torchrun`, `deepspeed` and `accelerate launch` before the script.",
        .keys = {reads_script("script"),
                 reads("words", "", "shardline starts its ranks itself", read_words).in_phase(2),
                 reads("use_fsdp", "smp_options.sharded_data_parallel_degree",
                       "FULL_SHARD, unless config_file or other options say more", read_use_fsdp)
                     .in_phase(3),
                 reads("use_deepspeed", "smp_options.shard_optimizer_state, .shard_gradients",
                       "stage 2, unless config_file or other options say more", read_use_deepspeed)
                     .in_phase(3),
                 maps("cpu", "training.use_cpu"), maps("nproc_per_node", "mpi_options.processes_per_host"),
                 maps("num_gpus", "mpi_options.processes_per_host"), reads_machines("nnodes"),
                 reads_machines("num_nodes"), reads_processes("num_processes"), reads_machines("num_machines"),
                 reads("mixed_precision", "training.fp16, training.bf16", "", read_precision),
                 holds("config_file", accelerate_keys, "the name of accelerate's file"),
                 maps("max_restarts", "mpi_options.max_restarts"),
                 maps("num_cpu_threads_per_process", "runtime.threads_per_rank"),
                 refuses("hostfile", "name the machines with --hosts A,B"),
                 refuses("include", "name the machines with --hosts A,B"),
                 refuses("exclude", "name the machines with --hosts A,B")},
        .names_vary = true};
    for (const auto& section : {keys_of_fsdp(), keys_of_deepspeed(), keys_of_megatron()})
      for (ForeignKey key : section) {
        key.name = key.name.substr(key.name.find('.') + 1);
        all.keys.push_back(std::move(key));
      }
    all.is_unused = is_of_other_launch;
    all.add_defaults = add_defaults_of_launcher;
    const auto add = [&](const std::string& reason, const std::vector<const char*>& names) {
      for (const char* name : names) all.keys.push_back(ignores(name, reason));
    };
    add("ranks find each other through MPI",
        {"node_rank", "master_addr", "master_port", "machine_rank", "main_process_ip", "main_process_port",
         "standalone", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "same_network"});
    add("shardline starts its ranks itself", {"monitor_interval", "multi_gpu", "launcher"});
    add("its options determine what is split", {"use_megatron_lm"});
    add("changes no output", {"quiet", "debug"});
    add("there is no Python code to run or to compile", {"m", "module", "u", "dynamo_backend", "dynamo_mode"});
    return all;
  }();
  return keys;
}

}  // namespace shardline

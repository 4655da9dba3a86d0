// Hyperparameters of scripts, which are also the arguments of Hugging Face's example scripts, and what SageMaker's
// library adds to them.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/files/json_text.h"
#include "engine/import/keys/job_facts.h"
#include "engine/import/keys/values.h"
#include "engine/import/keys/vocabulary.h"

namespace shardline {
namespace {

using nlohmann::json;
using Keys = std::vector<ForeignKey>;

// Another value in the same object, whatever dashes are in its name.
json value_beside(const json& root, const std::string& name) {
  for (const auto& [key, value] : root.items())
    if (plain_name(key) == name) return value;
  return nullptr;
}
json value_beside(const Given& given, const std::string& name) {
  return value_beside(given.root, name);
}

Outcome give_path(const std::string& target, const Given& given, Draft& draft) {
  const std::string path = plain_text(given.value);
  if (const std::string here = local_path(path, draft); here != path)
    return draft.give(target, here, given.name, "from --channel");
  return draft.give(target, given.value, given.name);
}

ForeignKey path_key(const std::string& name, const std::string& target) {
  return reads(name, target, "", [=](const Given& given, Draft& draft) { return give_path(target, given, draft); });
}

// What to do if the name is not a local path, but one on the hub.
std::string note_of_hub(const std::string& name) {
  std::error_code ignored;
  if (name.empty() || name[0] == '/' || name[0] == '.' || std::filesystem::exists(name, ignored)) return "";
  return cat("a directory; to get it from the hub: hf download ", name, " --local-dir ", name);
}

// A model: a directory here, or a name on the hub.
Outcome read_model(const Given& given, Draft& draft) {
  if (draft.has("model.path")) {
    const Outcome outcome = draft.give("model.path", given.value, given.name);
    return outcome.fate == Fate::refused ? neutral(cat("model.path is ", draft.value("model.path").dump())) : outcome;
  }
  const std::string name = plain_text(given.value), here = local_path(name, draft);
  return draft.give("model.path", here, given.name, here != name ? "from --channel" : note_of_hub(name));
}

Outcome read_tokenizer(const Given& given, Draft& draft) {
  const std::string name = plain_text(given.value), here = local_path(name, draft);
  const std::string note = here != name ? "from --channel" : name == "bytes" ? "" : note_of_hub(name);
  return draft.give("data.tokenizer", here, given.name, note);
}

Outcome read_model_type(const Given& given, Draft& draft) {
  if (draft.has("model.path")) return neutral("the model has it in its config.json");
  return draft.give("model.config.model_type", given.value, given.name);
}

// "n_embd=1024,n_layer=24,scale_attn_weights=false"
Outcome read_overrides(const Given& given, Draft& draft) {
  std::istringstream items(plain_text(given.value));
  std::string item, targets;
  while (std::getline(items, item, ',')) {
    const auto equals = item.find('=');
    if (equals == std::string::npos || equals == 0)
      return refused(cat("\"", item, "\" must be KEY=VALUE; write it so, or give model.config"));
    const std::string target = "model.config." + item.substr(0, equals);
    const Outcome outcome = draft.give(target, item.substr(equals + 1), given.name);
    if (outcome.fate == Fate::refused) return outcome;
    targets += (targets.empty() ? "" : ", ") + target;
  }
  return targets.empty() ? neutral("unset") : mapped_to(targets);
}

Outcome read_regression(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off");
  return draft.give("model.config.num_labels", 1, given.name, "one number");
}

// The seed of shuffle_train_dataset, whose default is 42.
Outcome read_shuffle(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off: samples are the first ones");
  const json seed = value_beside(given, "shuffle_seed");
  return draft.give("data.max_samples_seed", seed.is_null() ? json(42) : seed, given.name, "the seed, or its default");
}

Outcome read_shuffle_seed(const Given& given, Draft& draft) {
  if (!is_on(value_beside(given, "shuffle_train_dataset"))) return neutral("is only used with shuffle_train_dataset");
  return draft.give("data.max_samples_seed", given.value, given.name);
}

// In run_ner, the column of words.
Outcome read_text_column(const Given& given, Draft& draft) {
  const bool words = draft.has("task") && draft.value("task") == "token-classification";
  return draft.give(words ? "data.tokens_column" : "data.text_column", given.value, given.name);
}

// "sentence1,sentence2"
Outcome read_text_columns(const Given& given, Draft& draft) {
  const std::string text = plain_text(given.value);
  const auto comma = text.find(',');
  if (comma != std::string::npos && text.find(',', comma + 1) != std::string::npos)
    return refused("a sample has one or two texts; join the columns in the files");
  const Outcome first = draft.give("data.text_column", text.substr(0, comma), given.name);
  if (comma == std::string::npos || first.fate == Fate::refused) return first;
  const Outcome second = draft.give("data.text_pair_column", text.substr(comma + 1), given.name);
  return second.fate == Fate::refused ? second : mapped_to("data.text_column, data.text_pair_column");
}

Outcome read_data_set(const Given& given, Draft& draft) {
  if (is_off(given.value)) return neutral("unset");
  if (draft.has("data.train") || draft.options().channels.contains("train"))
    return neutral("data.train names the files");
  return refused("nothing is downloaded; name the files with --channel train=PATH and --channel validation=PATH");
}

Outcome read_output(const Given& given, Draft& draft) {
  const std::string path = plain_text(given.value);
  if (path.find("://") != std::string::npos) return neutral("nothing is copied to a store; output_dir has the model");
  if (draft.has("output_dir")) return neutral(cat("output_dir is ", draft.value("output_dir").dump()));
  return draft.give("output_dir", path, given.name);
}

Outcome read_training(const Given& given, Draft&) {
  if (is_on(given.value)) return neutral("the command decides: shardline train");
  if (given.value.is_null()) return neutral("unset");
  return refused(
      "the job does not train, but an imported config is for training; leave this key out to train, or use "
      "shardline eval or predict");
}

// The type of a script's weights, in which it also computes if neither bf16 nor fp16 is given.
Outcome read_weight_type(const Given& given, Draft& draft) {
  const std::string type = plain_text(given.value);
  if (is_off(given.value) || type == "auto" || type == "float32")
    return neutral("bf16 and fp16 determine the precision");
  for (const char* precision : {"bf16", "fp16"})
    if (const std::string key = cat("training.", precision); draft.has(key) && draft.value(key) == true)
      return neutral(cat(precision, " determines the precision; weights and optimizer states stay in fp32"));
  if (type == "bfloat16")
    return draft.give("training.bf16", true, given.name, "weights and optimizer states stay in fp32");
  if (type == "float16") return refused("training in float16 needs a loss scale; remove this key and set fp16");
  return refused("must be auto, float32, bfloat16 or float16");
}

// The config of Accelerate in TrainingArguments, as an object or as text.
Outcome read_accelerator_config(const Given& given, Draft& draft) {
  if (is_off(given.value)) return neutral("unset");
  const json config = given.value.is_string() ? json_in_text(plain_text(given.value)) : given.value;
  if (!config.is_object()) return refused("give the keys of the file as an object, or leave it out");
  if (is_on(config.value("split_batches", json(false))))
    return refused(
        "split_batches makes per_device_train_batch_size the batch of all devices; give that batch as "
        "global_batch_size");
  const json accumulation = config.value("gradient_accumulation_kwargs", json());
  if (accumulation.is_object() && accumulation.contains("num_steps"))
    return draft.give("training.gradient_accumulation_steps", accumulation["num_steps"], given.name, "num_steps");
  return neutral("there is no Accelerate here");
}

// "full_shard auto_wrap": words of TrainingArguments. Version 5 takes a truth value, too.
Outcome read_fsdp(const Given& given, Draft& draft) {
  if (is_off(given.value)) return neutral("is off");
  if (is_on(given.value)) return shard_as_fsdp("FULL_SHARD", given, draft);
  std::string text = given.value.is_array() ? "" : plain_text(given.value), strategy, word;
  for (const json& one : given.value.is_array() ? given.value : json::array()) text += plain_text(one) + ' ';
  for (std::istringstream words(text); words >> word;) {
    std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
    if (word == "AUTO_WRAP") continue;
    if (word == "OFFLOAD") return refused("weights stay on the devices; leave offload out");
    if (!strategy.empty()) return refused("names two strategies; keep one of them");
    strategy = word;
  }
  return strategy.empty() ? neutral("names no strategy") : shard_as_fsdp(strategy, given, draft);
}

// A key that asks for more than training, which scripts do only if do_train is given.
ForeignKey beside_training(ForeignKey key) {
  key.read = [target = key.target](const Given& given, Draft& draft) {
    if (is_on(given.value) && value_beside(given, "do_train").is_null() && trains_only_if_told(draft))
      return refused(
          "without do_train, the script does not train, but an imported config is for training; add do_train, or use "
          "shardline eval or predict");
    return draft.give(target, given.value, given.name);
  };
  return key;
}

// run_glue takes "MRPC" for "mrpc".
ForeignKey with_task_in_lower_case(ForeignKey key) {
  key.read = [target = key.target](const Given& given, Draft& draft) {
    static const std::set<std::string> tasks = {"cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"};
    std::string name = plain_text(given.value);
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    return draft.give(target, tasks.contains(name) ? json(name) : given.value, given.name);
  };
  return key;
}

// The arguments of run_glue, run_classification, run_qa, run_clm, run_mlm and run_ner besides TrainingArguments.
Keys script_arguments() {
  const std::string hub = "nothing is downloaded";
  const std::string split = "nothing is downloaded; name the files with train_file, validation_file and test_file";
  return {
      reads("model_name_or_path", "model.path", "a directory; models of the hub must be downloaded", read_model),
      refuses(
          "config_name",
          "nothing is downloaded; give the keys of its config.json with --set model.config={...}, and leave it out"),
      reads("tokenizer_name", "data.tokenizer",
            "a directory or tokenizer.json; tokenizers of the hub must be downloaded", read_tokenizer),
      reads("model_type", "model.config.model_type", "without a model path", read_model_type).in_phase(1),
      reads("config_overrides", "model.config", "\"n_embd=1024,n_layer=24\"", read_overrides),
      path_key("train_file", "data.train"),
      path_key("validation_file", "data.validation"),
      path_key("test_file", "data.test"),
      path_key("output_dir", "output_dir"),
      reads("do_train", "", "true; false is refused", read_training),
      maps("max_seq_length", "data.sequence_length"),
      maps("block_size", "data.sequence_length"),
      reads("text_column_name", "data.text_column", "with run_ner: data.tokens_column", read_text_column).in_phase(3),
      reads("text_column_names", "data.text_column, data.text_pair_column", "two names with a comma between them",
            read_text_columns),
      maps("label_column_name", "data.label_column"),
      maps("metric_name", "training.metric_for_best_model"),
      reads("do_regression", "model.config.num_labels", "1", read_regression),
      reads("shuffle_train_dataset", "data.max_samples_seed", "shuffle_seed, or 42", read_shuffle),
      reads("shuffle_seed", "data.max_samples_seed", "with shuffle_train_dataset", read_shuffle_seed),
      reads("dataset_name", "", "the channels name the files", read_data_set).in_phase(4),
      reads("dataset_config_name", "", "the channels name the files", read_data_set).in_phase(4),
      ignores("cache_dir", hub),
      ignores("model_revision", hub),
      ignores("token", hub),
      ignores("use_auth_token", hub),
      reads("torch_dtype", "training.bf16", "if it is bfloat16; weights and optimizer states stay in fp32",
            read_weight_type)
          .in_phase(2),
      reads("dtype", "training.bf16", "if it is bfloat16; weights and optimizer states stay in fp32", read_weight_type)
          .in_phase(2),
      ignores("low_cpu_mem_usage", "each rank reads only its part of the files"),
      holds("deepspeed", deepspeed_keys, "the file of DeepSpeed's config, or the config"),
      reads("fsdp", "smp_options.sharded_data_parallel_degree, .shard_optimizer_state, .shard_gradients",
            "full_shard: all replicas; shard_grad_op: states and gradients; hybrid_shard: those of a host", read_fsdp)
          .in_phase(2),
      holds("fsdp_config", fsdp_keys, "with fsdp: an object, or the name of a file"),
      reads("accelerator_config", "training.gradient_accumulation_steps",
            "num_steps of gradient_accumulation_kwargs; split_batches is refused", read_accelerator_config),
      refuses("text_column_delimiter", "join the columns in the files"),
      refuses("train_split_name", split),
      refuses("validation_split_name", split),
      refuses("test_split_name", split),
      ignores("remove_columns", "only columns that a key names are read"),
      ignores("use_legacy_prediction_loop", "there is one loop for evaluations"),
      refuses("streaming", "leave it out: token ids are cached on disk once"),
  };
}

// "epoch", or a number of steps.
Outcome read_checkpointing_steps(const Given& given, Draft& draft) {
  if (plain_text(given.value) == "epoch") return draft.give("training.save_strategy", "epoch", given.name);
  return draft.give("training.save_steps", given.value, given.name);
}

// The arguments that only scripts with their own training loop have (run_..._no_trainer.py).
Keys arguments_without_trainer() {
  return {
      maps("num_warmup_steps", "training.warmup_steps"),
      maps("max_train_steps", "training.max_steps"),
      reads("checkpointing_steps", "training.save_steps, training.save_strategy", "a number, or `epoch`",
            read_checkpointing_steps),
      ignores("with_tracking", "metrics.jsonl has all numbers of a run"),
      ignores("use_slow_tokenizer", "each tokenizer is implemented once"),
  };
}

// The arguments of the scripts in Hugging Face's notebooks for SageMaker.
Keys notebook_arguments() {
  const auto data = [](const char* target) {
    return [target](const Given& given, Draft& draft) { return give_path(target, given, draft); };
  };
  return {
      reads("model_name", "model.path", "a directory; models of the hub must be downloaded", read_model).in_phase(1),
      reads("model_id", "model.path", "a directory; models of the hub must be downloaded", read_model).in_phase(1),
      reads("tokenizer", "data.tokenizer", "a directory or tokenizer.json; tokenizers of the hub must be downloaded",
            read_tokenizer),
      maps("epochs", "training.num_train_epochs"),
      maps("train_batch_size", "training.per_device_train_batch_size"),
      maps("eval_batch_size", "training.per_device_eval_batch_size"),
      maps("val_batch_size", "training.per_device_eval_batch_size"),
      maps("lr", "training.learning_rate"),
      maps("max_length", "data.sequence_length"),
      reads("training_dir", "data.train", "", data("data.train")),
      reads("train_dir", "data.train", "", data("data.train")),
      reads("test_dir", "data.validation", "", data("data.validation")),
      reads("validation_dir", "data.validation", "", data("data.validation")),
      reads("model_dir", "output_dir", "a path; not a URI of a store", read_output).in_phase(1),
      ignores("output_data_dir", "output_dir has all files of a run"),
      ignores("n_gpus", "mpi_options.processes_per_host determines it"),
      ignores("num_gpus", "mpi_options.processes_per_host determines it"),
  };
}

Outcome read_strategy(const Given& given, Draft& draft) {
  const json flag = value_beside(given, "activation_checkpointing");
  if (is_off(flag) && !flag.is_null()) return neutral("activation_checkpointing is off");
  return draft.give("smp_options.activation_checkpointing", given.value, given.name);
}

Outcome read_recompute_flag(const Given& given, Draft& draft) {
  if (!value_beside(given, "activation_strategy").is_null())
    return neutral(is_on(given.value) ? "activation_strategy says which" : "is off");
  const bool is_flag = is_on(given.value) || is_off(given.value);
  return draft.give(is_flag ? "training.activation_checkpointing" : "smp_options.activation_checkpointing", given.value,
                    given.name);
}

Outcome read_decay_argument(const std::string& argument, const Given& given, Draft& draft) {
  draft.add("training.lr_scheduler_type", "annealing", "the schedule of SageMaker's examples");
  return draft.give("training.lr_scheduler_kwargs." + argument, given.value, given.name);
}

ForeignKey decay_key(const std::string& name) {
  return reads(name, "training.lr_scheduler_kwargs." + name, "with lr_scheduler_type `annealing`",
               [=](const Given& given, Draft& draft) { return read_decay_argument(name, given, draft); });
}

Outcome read_context_width(const Given& given, Draft& draft) {
  const Outcome length = draft.give("data.sequence_length", given.value, given.name);
  if (length.fate != Fate::mapped || draft.has("model.path")) return length;
  draft.give("model.config.n_positions", draft.value("data.sequence_length"), given.name);
  return mapped_to("data.sequence_length, model.config.n_positions");
}

Outcome read_validation_freq(const Given& given, Draft& draft) {
  draft.add("training.eval_strategy", "steps", "validation_freq counts steps");
  return draft.give("training.eval_steps", given.value, given.name);
}

// The number of batches for each data-parallel rank.
Outcome read_validation_batches(const Given& given, Draft& draft) {
  const json count = value_for(json_integer(1), given.value);
  if (!count.is_number_integer() || draft.replicas() < 1)
    return refused(
        "must be a number of batches, and the number of replicas must be known; give data.max_eval_samples instead");
  const bool prescaled = draft.has("smp_options.prescaled_batch") && draft.value("smp_options.prescaled_batch") == true;
  const int64_t ranks = draft.replicas() * (prescaled ? 1 : draft.integer("smp_options.tensor_parallel_degree", 1));
  const int64_t batch = draft.integer("training.per_device_eval_batch_size", 8);
  return draft.give("data.max_eval_samples", count.get<int64_t>() * batch * ranks, given.name,
                    cat(batch, " samples x ", ranks, " data-parallel ranks x batches"));
}

Outcome read_loading(const Given& given, Draft& draft) {
  if (!is_on(given.value)) return neutral("is off");
  return draft.give("training.resume_from_checkpoint", "auto", given.name);
}

Outcome read_use_adamw(const Given& given, Draft& draft) {
  return draft.give("training.optim", is_on(given.value) ? "adamw_torch" : "adam", given.name,
                    "true: adamw_torch; false: adam");
}

ForeignKey model_key(const std::string& name, const std::string& member) {
  return reads(name, "model.config." + member, "", [=](const Given& given, Draft& draft) {
    return draft.give("model.config." + member, given.value, given.name);
  });
}

// The arguments of SageMaker's GPT-2 and GPT-J examples for its model parallel library.
Keys gpt_example_arguments() {
  Keys keys = {
      reads("max_context_width", "data.sequence_length, model.config.n_positions", "", read_context_width).in_phase(1),
      model_key("vocab_size", "vocab_size"),
      model_key("hidden_width", "n_embd"),
      model_key("num_layers", "n_layer"),
      model_key("num_heads", "n_head"),
      model_key("resid_pdrop", "resid_pdrop"),
      model_key("embd_pdrop", "embd_pdrop"),
      model_key("attn_pdrop", "attn_pdrop"),
      model_key("rotary_dim", "rotary_dim"),
      model_key("initializer_range", "initializer_range"),
      model_key("layernorm_epsilon", "layer_norm_epsilon"),
      maps("beta1", "training.adam_beta1"),
      maps("beta2", "training.adam_beta2"),
      maps("grad_clip", "training.max_grad_norm"),
      reads("use_adamw", "training.optim", "true: adamw_torch; false: adam", read_use_adamw),
      decay_key("lr_decay_style"),
      decay_key("lr_decay_iters"),
      decay_key("min_lr"),
      decay_key("plateau"),
      maps("warmup", "training.warmup_steps", "a share of lr_decay_iters"),
      maps("gradient_accumulation", "training.gradient_accumulation_steps"),
      maps("checkpoint_freq", "training.save_steps"),
      maps("num_kept_checkpoints", "training.save_total_limit"),
      reads("load_partial", "training.resume_from_checkpoint", "auto", read_loading),
      reads("load_full", "training.resume_from_checkpoint", "auto", read_loading),
      maps("logging_freq", "training.logging_steps"),
      reads("validation_freq", "training.eval_steps, training.eval_strategy", "", read_validation_freq),
      reads("validation_batches", "data.max_eval_samples", "batches x their size x data-parallel ranks",
            read_validation_batches)
          .in_phase(2),
      reads("activation_checkpointing", "smp_options.activation_checkpointing", "without activation_strategy: `each`",
            read_recompute_flag),
      reads("activation_strategy", "smp_options.activation_checkpointing", "", read_strategy),
      refuses("manual_partition", "give smp_options.manual_partition, the number of blocks of each stage"),
      refuses("use_bert_data", "give the data as text or tokens"),
      refuses("data_type", "data.format depends on the files; leave it out", "gpt"),
      refuses("fast_validation", "evaluations use all of their samples; leave it out"),
  };
  const std::string one_form = "checkpoints do not depend on the layout and have one format";
  const std::string fused = "changes no numbers";
  for (const auto& [name, reason] : std::vector<std::pair<const char*, std::string>>{
           {"zipped_data", "files are read as they are"},
           {"skip_full_optimizer", one_form},
           {"gather_if_shard", one_form},
           {"save_final_full_model", "the final model is always saved"},
           {"save_or_verify_ckptsum", "checkpoints always have checksums"},
           {"preserve_np_state", "no random state is kept: numbers follow from the seed"},
           {"same_seed", "numbers do not depend on the layout"},
           {"clean_cache", "memory is reused in any case"},
           {"use_distributed_transformer", "tensor_parallel_degree splits every model"},
           {"delayed_param", "each rank builds only its own part of the model"},
           {"finetune_6b", "model.path names the weights"},
           {"fused_softmax", fused},
           {"fused_dropout", fused},
           {"fused_bias_gelu", fused},
           {"parallel_proc_data_processing", "all cores are used"},
           {"enable_memory_profiling", "metrics.jsonl always has the memory in use"},
           {"ssd_dir", "caches are in $XDG_CACHE_HOME"}})
    keys.push_back(ignores(name, reason));
  return keys;
}

// Keys that SageMaker's library adds for its containers.
Keys platform_keys() {
  return {
      holds("mp_parameters", model_parallel_keys, "as SageMaker's library passes `parameters` on"),
      reads_script("sagemaker_program"),
      maps("task", "task", "of a config, for scripts that are not known here"),
      ignores("sagemaker_mpi_enabled", "several ranks are always started with mpirun"),
      maps("sagemaker_mpi_num_of_processes_per_host", "mpi_options.processes_per_host"),
      maps("sagemaker_mpi_custom_mpi_options", "mpi_options.custom_mpi_options"),
      reads("sagemaker_distributed_dataparallel_enabled", "smp_options.ddp", "",
            [](const Given& given, Draft& draft) {
              if (!is_on(given.value)) return neutral("is off");
              return draft.give("smp_options.ddp", true, given.name);
            }),
      maps("sagemaker_distributed_dataparallel_custom_mpi_options", "mpi_options.custom_mpi_options"),
      ignores("sagemaker_torch_distributed_enabled", "each GPU gets a process in any case"),
      ignores("sagemaker_pytorch_ddp_enabled", "each GPU gets a process in any case"),
      reads_instance_type("sagemaker_instance_type"),
      refuses("sagemaker_parameter_server_enabled", "parameter servers are not supported"),
      ignores("sagemaker_submit_directory", "no Python is run"),
      ignores("_tuning_objective_metric", "metrics.jsonl has all numbers of a run"),
      ignores("sagemaker_requirements", "no Python is run"),
      ignores("sagemaker_container_log_level", "changes no output"),
      ignores("sagemaker_job_name", "output_dir names the run"),
      ignores("sagemaker_region", "no service is called"),
      ignores("sagemaker_s3_output", "nothing is copied to or from S3"),
      ignores("sagemaker_estimator_class_name", "no Python is run"),
      ignores("sagemaker_estimator_module", "no Python is run"),
      refuses("sagemaker_instance_groups", "all hosts have the same number of ranks; leave the groups out"),
  };
}

}  // namespace

const Vocabulary& hyperparameter_keys() {
  static const Vocabulary keys = [] {
    Vocabulary all{
        .title = "Hyperparameters and script arguments",
        .introduction =
            "The keys of `training`, `data` and `smp_options`, and those of `model` that say how files are read, have "
            "their names of the [config reference](config.md): `TrainingArguments` and the arguments of transformers' "
            "example scripts. `learning_rate`, `learning-rate` and `--learning_rate` are the same. Values may be "
            "texts: "
            "`\"3\"`, `\"true\"`, `\"\\\"gpt2\\\"\"`. These are the others:",
        .keys = {},
        .names_vary = true};
    all.is_unused = [](const json& root, const std::string& key) {
      return plain_name(key) == "fsdp_config" && is_off(value_beside(root, "fsdp"));
    };
    for (const auto& group : {script_arguments(), arguments_without_trainer(), notebook_arguments(),
                              gpt_example_arguments(), platform_keys()})
      all.keys.insert(all.keys.end(), group.begin(), group.end());
    for (const char* section : {"training", "data", "model", "smp_options"})
      for (const auto& key : keys_of_section(section))
        if (!all.find({key.name}) && key.name != "config" && key.name != "path" && key.name != "init")
          all.own_keys.push_back(key.name == "do_eval" || key.name == "do_predict" ? beside_training(key)
                                 : key.name == "task_name"                         ? with_task_in_lower_case(key)
                                                                                   : key);
    return all;
  }();
  return keys;
}

}  // namespace shardline

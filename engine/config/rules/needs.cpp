#include "engine/config/rules/needs.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "engine/config/keys/partition_rules.h"
#include "engine/config/keys/registry.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/saving_rules.h"

namespace shardline {
namespace {

struct Run {
  const Config& config;
  bool on_gpus = false;

  const TrainingOptions& training() const { return config.training; }
  const SmpOptions& smp() const { return config.smp; }
  const DataOptions& data() const { return config.data; }
};

struct Need {
  const char* key;
  // The text that follows "has no effect", such as "without fp16"; empty if the key has an effect.
  std::function<std::string(const Run&)> why;
  const char* advice = "";  // not empty: the key is refused with this advice; empty: it is listed
};

std::string when(bool condition, const std::string& text) {
  return condition ? text : "";
}

bool is_adam(const Run& run) {
  const auto kind = optimizer_kind(run.training().optim);
  return kind == OptimizerOptions::Kind::adamw || kind == OptimizerOptions::Kind::adam ||
         kind == OptimizerOptions::Kind::added;  // an added optimizer may read Adam's keys
}

// Whether the model is a graph of operators: an exported program or a traced module.
bool is_graph(const Run& run) {
  return run.config.model.is_program() || is_traced(run.config.model);
}

bool recomputes_only_attention(const RecomputeRules& rules) {
  using What = Recompute::What;
  const auto has = [&](What what) {
    return std::ranges::any_of(rules.entries, [&](const RecomputeRule& rule) { return rule.recompute.what == what; });
  };
  return has(What::attention) && !has(What::layers);
}

bool has_evaluation_data(const Run& run) {
  return !run.data().validation.empty() || run.data().validation_split_percentage > 0;
}

bool evaluates(const Run& run) {
  const auto& t = run.training();
  return has_evaluation_data(run) && (t.eval_strategy != EvalStrategy::no || t.eval_on_start || t.do_eval);
}

bool may_read_columns(const DataOptions& data) {
  if (data.format != DataFormat::automatic)
    return data.format != DataFormat::text && data.format != DataFormat::tokens && data.format != DataFormat::memory;
  const auto is_other = [](const std::string& path) {
    const auto extension = std::filesystem::path(path).extension();
    return extension == ".txt" || extension == ".text" || extension == ".md" || extension == ".bin" ||
           extension == ".idx";
  };
  return !std::all_of(data.train.begin(), data.train.end(), is_other) ||
         !std::all_of(data.validation.begin(), data.validation.end(), is_other);
}

// Whether samples are blocks of sequence_length tokens.
bool has_blocks(const Run& run) {
  if (run.config.task == kMaskedLm) return !run.data().line_by_line;
  return run.config.task == kCausalLm && !run.data().completion_only_loss &&
         (run.data().used_packing() == Packing::wrapped || run.data().used_packing() == Packing::wrapped_reset);
}

int replicas(const Run& run) {
  return configured_world_size(run.config) / (run.smp().pipeline_parallel_degree * run.smp().tensor_parallel_degree);
}

bool starts_mpirun(const Run& run) {
  const CommunicatorChoice communicator = run.config.runtime.communicator;
  if (!run.config.mpi.enabled || communicator == CommunicatorChoice::threads ||
      communicator == CommunicatorChoice::local)
    return false;
  return communicator != CommunicatorChoice::automatic || configured_world_size(run.config) > 1;
}

int axes(const Run& run) {
  return (run.smp().pipeline_parallel_degree > 1) + (run.smp().tensor_parallel_degree > 1) + (replicas(run) > 1);
}

// Keys of the data that only these tasks of shardline read.
struct KeyOfTasks {
  const char* key;
  std::vector<std::string> tasks;
};

const std::vector<KeyOfTasks>& keys_of_tasks() {
  static const std::vector<KeyOfTasks> all = {
      {"data.completion_only_loss", {kCausalLm}},
      {"data.packing", {kCausalLm}},
      {"data.mlm_probability", {kMaskedLm}},
      {"data.line_by_line", {kMaskedLm}},
      {"data.whole_word_mask", {kMaskedLm}},
      {"data.source_column", {kSeq2SeqLm}},
      {"data.target_column", {kSeq2SeqLm}},
      {"data.prefix", {kSeq2SeqLm}},
      {"data.max_target_length", {kSeq2SeqLm}},
      {"data.text_pair_column", {kSequenceClassification}},
      {"data.label_column", {kSequenceClassification, kTokenClassification}},
      {"data.tokens_column", {kTokenClassification}},
      {"data.question_column", {kQuestionAnswering}},
      {"data.context_column", {kQuestionAnswering}},
      {"data.answers_column", {kQuestionAnswering}},
      {"data.doc_stride", {kQuestionAnswering}},
      {"data.n_best_size", {kQuestionAnswering}},
      {"data.max_answer_length", {kQuestionAnswering}},
      {"data.version_2_with_negative", {kQuestionAnswering}},
      {"data.null_score_diff_threshold", {kQuestionAnswering}},
      {"data.max_predict_samples", {kMaskedLm, kSequenceClassification, kTokenClassification, kQuestionAnswering}},
  };
  return all;
}

// A program's own task may read any key.
bool is_own_task(const std::string& task) {
  return task == task_name(traits_of(task).head);
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::string list;
  for (const auto& word : words) list += cat(list.empty() ? "" : " or ", '"', word, '"');
  return list;
}

void check_keys_of_tasks(const Config& config, const std::function<bool(const std::string& key)>& gives,
                         const Complaint& complain) {
  if (!is_own_task(config.task)) return;
  for (const auto& [key, tasks] : keys_of_tasks()) {
    if (std::ranges::find(tasks, config.task) != tasks.end() || !gives(key)) continue;
    complain(key, cat("has no effect with task \"", config.task, '"'),
             cat("leave it out, or set task to ", quoted_list(tasks)));
  }
}

const std::vector<Need>& needs() {
  const auto without_fp16 = [](const Run& run) { return when(!run.training().fp16, "without fp16"); };
  const auto in_fp32 = [](const Run& run) {
    return when(precision_of(run.config) == Precision::fp32, "without bf16 or fp16");
  };
  const auto without_adam = [](const Run& run) {
    return when(!is_adam(run), cat("with optim \"", word_of(run.training().optim), '"'));
  };
  const auto without_evaluation = [](const Run& run) {
    return when(!evaluates(run), has_evaluation_data(run) ? "without eval_strategy, eval_on_start or do_eval"
                                                          : "without data to evaluate on");
  };
  const auto without_predictions = [](const Run& run) {
    return when(!run.training().do_predict, "in training without do_predict; `shardline predict` reads it");
  };
  const auto without_saving_by_steps = [](const Run& run) {
    return when(run.training().save_strategy != SaveStrategy::steps,
                cat("with save_strategy \"", word_of(run.training().save_strategy), '"'));
  };
  const auto without_best = [](const Run& run) {
    return when(!compares_evaluations(run.training()),
                "without load_best_model_at_end, save_strategy \"best\", early_stopping_patience or "
                "lr_scheduler_type \"reduce_lr_on_plateau\"");
  };
  const auto without_offloading = [](const Run& run) {
    return when(!run.smp().offload_activations, "without offload_activations");
  };
  const auto may_shard_weights = [](const Run& run) {
    return run.smp().sharded_data_parallel_degree > 1 || run.smp().sharded_data_parallel_degree == kAuto;
  };
  const auto without_sharded_weights = [=](const Run& run) {
    return when(!may_shard_weights(run), "without sharded_data_parallel_degree > 1");
  };
  const auto without_replicas = [](const Run& run) { return when(replicas(run) == 1, "with one replica (D = 1)"); };
  const auto without_tensor_parallelism = [](const Run& run) {
    return when(run.smp().tensor_parallel_degree == 1, "with tensor_parallel_degree 1");
  };
  const auto without_mpirun = [](const Run& run) {
    return when(!starts_mpirun(run), "where no ranks are started with mpirun");
  };
  const auto without_data = [](const Run& run) {
    return when(!has_evaluation_data(run), "without data to evaluate on");
  };
  const auto with_task_name = [](const Run& run) { return when(run.data().task_name.has_value(), "with task_name"); };
  const char* set_fp16 = "set fp16 to true, or leave it out";
  const char* set_degree = "set sharded_data_parallel_degree, or leave this key out";
  const char* give_data = "give data.validation or data.validation_split_percentage";

  static const std::vector<Need> all = {
      {"training.static_loss_scale", without_fp16, set_fp16},
      {"training.dynamic_loss_scale", without_fp16, set_fp16},
      {"training.dynamic_loss_args", without_fp16, set_fp16},
      {"training.query_key_layer_scaling", without_fp16, set_fp16},
      {"data.text_column", with_task_name, "leave out either this key or task_name"},
      {"data.text_pair_column", with_task_name, "leave out either this key or task_name"},
      {"data.label_column", with_task_name, "leave out either this key or task_name"},
      {"data.null_score_diff_threshold",
       [](const Run& run) {
         return when(run.config.task == kQuestionAnswering && !run.data().version_2_with_negative,
                     "without version_2_with_negative");
       },
       "set version_2_with_negative to true, or leave this key out"},
      {"training.eval_strategy", without_data, give_data},
      {"training.eval_on_start", without_data, give_data},
      {"training.do_eval", without_data, give_data},
      {"training.early_stopping_patience",
       [](const Run& run) {
         return when(run.training().eval_strategy == EvalStrategy::no, "with eval_strategy \"no\"");
       },
       "set eval_strategy to \"steps\" or \"epoch\""},
      {"training.early_stopping_threshold",
       [](const Run& run) { return when(!run.training().early_stopping_patience, "without early_stopping_patience"); },
       "set early_stopping_patience, too"},
      {"smp_options.shard_gradients",
       [=](const Run& run) {
         return when(!run.smp().shard_optimizer_state && !may_shard_weights(run), "without shard_optimizer_state");
       },
       "set shard_optimizer_state, too"},
      {"smp_options.sdp_reduce_bucket_size", without_sharded_weights, set_degree},
      {"smp_options.sdp_param_persistence_threshold", without_sharded_weights, set_degree},
      {"smp_options.sdp_max_live_parameters", without_sharded_weights, set_degree},
      {"smp_options.sdp_gradient_clipping", without_sharded_weights, set_degree},
      {"smp_options.sdp_hierarchical_allgather",
       [=](const Run& run) {
         return when(!run.smp().shard_optimizer_state && !may_shard_weights(run), "where nothing is sharded");
       },
       "set sharded_data_parallel_degree or shard_optimizer_state, or leave this key out"},
      {"smp_options.load_partition",
       [](const Run& run) { return when(run.smp().partition_file.empty(), "without partition_file"); },
       "name the plan.json of an earlier run"},
      {"smp_options.partition_file",
       [](const Run& run) { return when(!run.smp().load_partition, "without load_partition"); },
       "set load_partition to true; each run writes its own partition into output_dir/plan.json"},
      {"smp_options.ddp_dist_backend",
       [](const Run& run) { return when(!run.smp().ddp.value_or(false), "without ddp"); },
       "set smp_options.ddp to true"},

      {"data.text_column",
       [](const Run& run) {
         const std::string& task = run.config.task;
         if (task == kTokenClassification || task == kQuestionAnswering) return cat("with task \"", task, '"');
         if (run.data().completion_only_loss)
           return std::string("with completion_only_loss, which reads the columns prompt and completion");
         return when(task == kCausalLm && !may_read_columns(run.data()), "without files that have columns");
       }},
      {"data.validation", without_evaluation},
      {"data.max_eval_samples", without_evaluation},
      {"training.eval_steps",
       [](const Run& run) {
         return when(run.training().eval_strategy == EvalStrategy::no, "with eval_strategy \"no\"");
       }},
      {"training.eval_delay",
       [](const Run& run) {
         return when(run.training().eval_strategy == EvalStrategy::no, "with eval_strategy \"no\"");
       }},
      {"training.logging_steps",
       [](const Run& run) {
         const auto& t = run.training();
         const bool for_evaluations = t.eval_strategy == EvalStrategy::steps && !t.eval_steps;
         return when(t.logging_strategy != LoggingStrategy::steps && !for_evaluations,
                     "with logging_strategy \"no\" or \"epoch\"");
       }},
      {"data.test", without_predictions},
      {"data.max_predict_samples", without_predictions},
      {"training.per_device_eval_batch_size",
       [=](const Run& run) { return run.training().do_predict ? "" : without_evaluation(run); }},
      {"training.save_steps", without_saving_by_steps},
      {"training.metric_for_best_model", without_best},
      {"training.greater_is_better", without_best},
      {"training.resume_with_changes",
       [](const Run& run) {
         return when(resume_source(run.config).kind == ResumeSource::Kind::fresh, "without resume_from_checkpoint");
       }},
      {"training.adam_beta1", without_adam},
      {"training.adam_beta2", without_adam},
      {"training.adam_epsilon", without_adam},
      {"training.no_decay_patterns",
       [](const Run& run) { return when(run.training().weight_decay == 0, "with weight_decay 0"); }},
      {"training.warmup_steps",
       [](const Run& run) {
         const auto& schedule = run.training().lr_scheduler_type;
         return when(schedule == RateSchedule::constant || schedule == RateSchedule::reduce_lr_on_plateau,
                     cat("with lr_scheduler_type \"", word_of(schedule), '"'));
       }},
      {"training.num_train_epochs",
       [](const Run& run) {
         return when(run.training().max_steps > 0, cat("with max_steps ", run.training().max_steps));
       }},
      {"training.data_seed",
       [](const Run& run) {
         return when(run.training().train_sampling_strategy == SamplingStrategy::sequential,
                     "with train_sampling_strategy \"sequential\"");
       }},
      {"training.train_sampling_strategy",
       [](const Run& run) {
         return when(run.training().train_sampling_strategy == SamplingStrategy::group_by_length && has_blocks(run),
                     "beyond that of \"random\" where all samples have the same length");
       }},
      {"data.max_samples_seed",
       [](const Run& run) {
         return when(!run.data().max_train_samples && !run.data().max_eval_samples && !run.data().max_predict_samples,
                     "without max_train_samples, max_eval_samples or max_predict_samples");
       },
       "set one of them, or leave it out"},
      {"data.validation_split_seed",
       [](const Run& run) {
         return when(run.data().validation_split_percentage == 0, "without validation_split_percentage");
       },
       "set validation_split_percentage, too"},
      {"training.tf32",
       [](const Run& run) {
         const bool multiplies_fp32 = precision_of(run.config) == Precision::fp32
                                          ? run.config.runtime.dtype == FullType::float32
                                          : run.training().attention_in_fp32;
         return when(!multiplies_fp32, "where no product has fp32 inputs");
       }},
      {"training.fp32_residual_addition", in_fp32},
      {"training.attention_in_fp32", in_fp32},
      {"smp_options.tensor_parallel_layers", without_tensor_parallelism},
      {"smp_options.optimize", without_tensor_parallelism},
      {"smp_options.prescaled_batch", without_tensor_parallelism},
      {"smp_options.placement_strategy",
       [](const Run& run) { return when(axes(run) < 2, "with at most one degree above 1"); }},
      {"smp_options.shard_optimizer_state", without_replicas},
      {"smp_options.shard_gradients", without_replicas},
      {"smp_options.default_partition",
       [](const Run& run) {
         if (run.smp().auto_partition) return std::string("with auto_partition true");
         return when(!run.smp().manual_partition.blocks.empty(),
                     "where manual_partition gives the number of blocks of each stage");
       }},
      {"smp_options.activation_checkpointing",
       [](const Run& run) {
         return when(is_graph(run) && recomputes_only_attention(run.smp().activation_checkpointing),
                     "with \"selective\" on a program, whose layers are recomputed as a whole (\"each\") or kept");
       }},
      {"smp_options.memory_weight",
       [](const Run& run) {
         return when(!run.smp().auto_partition || run.smp().load_partition,
                     "where the planner does not place the layers");
       }},
      {"smp_options.offload_activations",
       [](const Run& run) {
         return when(run.smp().activation_checkpointing == RecomputeRules() &&
                         run.smp().offload_scope == OffloadScope::checkpointed,
                     "without activation_checkpointing, unless offload_scope is \"all\"");
       }},
      {"smp_options.offload_scope",
       [=](const Run& run) {
         if (const auto why = without_offloading(run); !why.empty()) return why;
         return when(run.smp().offload_scope == OffloadScope::all && is_graph(run),
                     "beyond the hidden states between layers of a program: what its operators keep is not moved");
       }},
      {"smp_options.activation_loading_horizon", without_offloading},
      {"smp_options.offload_path", without_offloading},
      {"smp_options.offload_optimizer_states",
       [](const Run& run) {
         return when(!states_on_host(run.smp(), run.on_gpus), "on CPU ranks, which have them in the host's memory");
       }},
      {"mpi_options.custom_mpi_options", without_mpirun},
      {"mpi_options.max_restarts", without_mpirun},
      {"mpi_options.host_timeout", without_mpirun},
      {"mpi_options.elastic",
       [](const Run& run) {
         if (run.config.mpi.max_restarts == 0) return std::string("without max_restarts");
         return when(used_hosts(run.config) == 1, "on one host");
       }},
      {"runtime.timeline_first_step",
       [](const Run& run) {
         const int steps = run.training().max_steps, first = run.config.runtime.timeline_first_step;
         if (run.config.runtime.timeline_steps == 0) return std::string("with timeline_steps 0");
         return when(steps > 0 && first > steps, cat("with max_steps ", steps, ": no step is recorded"));
       }},
  };
  return all;
}

}  // namespace

void check_needs(const Config& config, const std::function<bool(const std::string& key)>& gives,
                 const Complaint& complain) {
  check_keys_of_tasks(config, gives, complain);
  for (const auto& need : needs()) {
    if (need.advice[0] == '\0' || !gives(need.key)) continue;
    if (const auto why = need.why({config}); !why.empty()) complain(need.key, "has no effect " + why, need.advice);
  }
}

std::vector<std::string> shorthands_refused_after(const Config& from, const Config& to) {
  std::vector<std::string> refused;
  for (const auto& need : needs())
    if (need.advice[0] != '\0' && !key_named(need.key).writes.empty() && need.why({from}).empty() &&
        !need.why({to}).empty())
      refused.push_back(need.key);
  return refused;
}

std::vector<std::string> keys_without_effect(const Config& config, bool on_gpus) {
  std::vector<std::string> lines;
  const Config defaults;
  for (const auto& need : needs()) {
    if (need.advice[0] != '\0') continue;
    const Key& key = key_named(need.key);
    if (key.load(config) == key.load(defaults)) continue;
    if (const auto why = need.why({config, on_gpus}); !why.empty())
      lines.push_back(cat(need.key, " has no effect ", why));
  }
  return lines;
}

std::vector<std::string> reasons_without_effect(const std::string& key, const Config& config) {
  std::vector<std::string> reasons;
  for (const auto& [name, tasks] : keys_of_tasks())
    if (name == key && std::ranges::find(tasks, config.task) == tasks.end())
      reasons.push_back(cat("no effect with task \"", config.task, "\"; set task to ", quoted_list(tasks)));
  for (const auto& need : needs()) {
    if (need.key != key) continue;
    if (const auto why = need.why({config}); !why.empty())
      reasons.push_back(cat("no effect ", why, need.advice[0] == '\0' ? "" : "; ", need.advice));
  }
  return reasons;
}

}  // namespace shardline

// transformers.TrainingArguments: the names and defaults of version 5, the spellings of version 4, and keys of our own.
#include "engine/config/keys/registry.h"
#include "optim/update/added_optimizer.h"

namespace shardline {
namespace {

constexpr double kLargestBatch = 65536;  // samples per device at a time
constexpr double kLongestTimeout = 1e8;  // seconds

const auto training_section = &Config::training;
using Training = TrainingOptions;

// read_config fills these in, so their defaults here differ from the struct's: "8 unless global_batch_size is given".
std::vector<Key> batch_keys() {
  return {
      honoured("global_batch_size", training_section, &Training::global_batch_size, json_integer(1),
               "Ours: samples in one optimizer step, over all replicas and accumulation steps; the other sizes follow "
               "from it."),
      honoured("per_device_train_batch_size", training_section, &Training::per_device_train_batch_size,
               json_integer(1, kLargestBatch),
               "Samples per replica in an accumulation step, before multiplication by T (smp_options.prescaled_batch). "
               "With global_batch_size it has no default.")
          .whose_default_is(8)
          .also({"per_gpu_train_batch_size"}),
      honoured("gradient_accumulation_steps", training_section, &Training::gradient_accumulation_steps,
               json_integer(1, 65536), "Number of batches whose gradients are accumulated for an optimizer step.")
          .whose_default_is(1),
      honoured(
          "per_device_eval_batch_size", training_section, &Training::per_device_eval_batch_size,
          json_integer(1, kLargestBatch),
          "Samples per replica in a batch of an evaluation, before multiplication by T (smp_options.prescaled_batch).")
          .also({"per_gpu_eval_batch_size"}),
      honoured("dataloader_drop_last", training_section, &Training::dataloader_drop_last, json_boolean(),
               "Drop the last batch of an epoch if it is incomplete; see Sizes."),
      honoured("auto_find_batch_size", training_section, &Training::auto_find_batch_size, json_boolean(),
               "Halve per_device_train_batch_size until the plan fits the memory, and again if the run still runs out "
               "of memory. With global_batch_size, more accumulation steps keep the global batch; "
               "otherwise the global batch becomes smaller. See [Sizes](#sizes)."),
      refused("average_tokens_across_devices", true, "Average the loss over the tokens of all ranks.",
              "leave it out: this is always done"),
  };
}

std::vector<Key> optimization_keys() {
  const Key warmup_ratio = shorthand(
      "warmup_ratio", or_null(json_number_below(0, 1)), 0.0, "training.warmup_steps",
      [](const nlohmann::json& value) { return value == 0 ? nlohmann::json() : value; },
      "Version 4: warm-up as a share of all steps; in version 5, warmup_steps below 1.");
  Key warmup_steps =
      honoured("warmup_steps", training_section, &Training::warmup_steps, json_number(0, kMostStepsOfRun),
               "Steps of linear warm-up; below 1: that share of all steps, rounded up.");
  warmup_steps.means = warmup_ratio.means;
  const Key adafactor = shorthand(
      "adafactor", json_boolean(), false, "training.optim",
      [](const nlohmann::json& value) { return value == true ? nlohmann::json("adafactor") : nlohmann::json(); },
      "Version 4: true means optim `adafactor`.");
  return {
      honoured("num_train_epochs", training_section, &Training::num_train_epochs, json_number(0, 1e9),
               "Passes over the training data; used if max_steps is -1."),
      honoured("max_steps", training_section, &Training::max_steps, json_integer(-1, kMostStepsOfRun),
               "Optimizer steps of the run; -1: num_train_epochs determines them."),
      honoured("learning_rate", training_section, &Training::learning_rate, json_number(0), "Peak learning rate."),
      honoured("lr_scheduler_type", training_section, &Training::lr_scheduler_type,
               json_choice(with_names(words_of<RateSchedule>({"greedy"},
                                                             "use \"reduce_lr_on_plateau\", which follows evaluations, "
                                                             "too, or \"cosine\""),
                                      added_rate_schedules())),
               "Learning-rate schedule after warm-up, with transformers' names and formulas. Ours: `annealing`, as in "
               "SageMaker's examples; see [learning-rate schedules](#learning-rate-schedules)."),
      honoured("lr_scheduler_kwargs", training_section, &Training::lr_scheduler_kwargs, or_null(json_any()),
               "Arguments of the schedule: an object, or an object as text. Arguments that the schedule does not have "
               "are errors."),
      warmup_steps,
      warmup_ratio,
      honoured("optim", training_section, &Training::optim,
               json_choice(with_names(
                   words_of<Optim>({"adagrad", "rmsprop", "lion_32bit", "adamw_8bit", "adamw_bnb_8bit",
                                    "paged_adamw_32bit", "paged_adamw_8bit", "ademamix", "stable_adamw", "adamw_hf"},
                                   "not implemented yet: use \"adamw_torch_fused\""),
                   added_optimizers())),
               "`adamw_torch_fused` and `adamw_torch` are the same AdamW. `sgd` is torch's, without momentum unless "
               "optim_args sets it. `adafactor` is transformers' with the settings of its Trainer: the learning rate "
               "comes from the schedule, second moments of matrices are factored, beta1 is not used; on GPUs it needs "
               "offload_optimizer_states. Ours, because transformers has no name for it: `adam` is torch's Adam, which "
               "adds weight decay to the gradient."),
      honoured("optim_args", training_section, &Training::optim_args, json_text(),
               "Arguments of `sgd` as text, for example `momentum=0.9,dampening=0,nesterov=true`; the other optimizers "
               "take none."),
      refused("optim_target_modules", nullptr, "Layers to which GaLore or APOLLO is applied.",
              "leave it out: `optim` has neither of these optimizers"),
      adafactor,
      honoured("weight_decay", training_section, &Training::weight_decay, json_number(0),
               "Weight decay; it does not apply to biases, norms or parameters that match no_decay_patterns. adamw and "
               "adafactor shrink weights by this factor times the learning rate; adam and sgd add this factor times "
               "the weight to the gradient."),
      honoured("no_decay_patterns", training_section, &Training::no_decay_patterns, json_texts(),
               "Ours: parameters without weight decay. A [pattern](#patterns) such as `*wte*` must match the whole "
               "name of a parameter, here (`embedding.wte.weight`) or in the model's files "
               "(`transformer.wte.weight`)."),
      honoured("adam_beta1", training_section, &Training::adam_beta1, json_number_below(0, 1),
               "beta1 of AdamW and Adam."),
      honoured("adam_beta2", training_section, &Training::adam_beta2, json_number_below(0, 1),
               "beta2 of AdamW and Adam."),
      honoured("adam_epsilon", training_section, &Training::adam_epsilon, json_number(0), "Epsilon of AdamW and Adam."),
      honoured("max_grad_norm", training_section, &Training::max_grad_norm, json_number(0),
               "Gradients are clipped to this L2 norm over the whole model; 0: no clipping."),
      honoured("max_grad_value", training_section, &Training::max_grad_value, json_number(0),
               "Ours: each element of the gradients is limited to plus or minus this value, after clipping by "
               "max_grad_norm; 0: no limit. For this limit alone, set max_grad_norm to 0."),
      honoured("label_smoothing_factor", training_section, &Training::label_smoothing_factor, json_number(0, 1),
               "Fraction of each label's probability that is spread evenly over all words or classes, in training and "
               "evaluation. Refused for answers, regressions and several labels, whose losses do not use it."),
      honoured("neftune_noise_alpha", training_section, &Training::neftune_noise_alpha, json_number(0),
               "NEFTune: in training, noise is added to the embeddings of words, uniform between plus and minus "
               "alpha / sqrt(tokens x hidden size), where tokens are those of the sample, or of its segment if samples "
               "are packed; transformers counts padding, too. Unset: none."),
      honoured(
          "trainable", training_section, &Training::trainable, json_texts(),
          "Ours: only parameters whose name here (`head.*`) or in the model's files (`transformer.ln_f.*`) matches one "
          "of these [patterns](#patterns) are trained; empty: all parameters. The others are frozen: they have no "
          "gradient, optimizer state or reduction, and layers before the first trained one run no backward pass."),
      honoured("seed", training_section, &Training::seed, json_integer(0, 4294967295.0),
               "Seed for initial weights, dropout and, unless data_seed is set, the order of samples."),
      honoured("data_seed", training_section, &Training::data_seed, json_integer(0, 4294967295.0),
               "Seed for the order of samples."),
      honoured("full_determinism", training_section, &Training::full_determinism, json_boolean(),
               "Runs on CPUs are always deterministic; true is refused on GPUs, where some sums have no fixed order."),
      honoured("train_sampling_strategy", training_section, &Training::train_sampling_strategy,
               json_choice(words_of<SamplingStrategy>()),
               "Order of the samples of an epoch. `random`: shuffled. `sequential`: the order of the files. "
               "`group_by_length`: shuffled, but samples of about the same length share a batch, as in transformers' "
               "LengthGroupedSampler; the first batch has the longest sample."),
      shorthand(
          "group_by_length", json_boolean(), false, "training.train_sampling_strategy",
          [](const nlohmann::json& value) {
            return value == true ? nlohmann::json("group_by_length") : nlohmann::json();
          },
          "Version 4: true means train_sampling_strategy `group_by_length`."),
      no_effect("length_column_name", json_text(), "length", "the length of a sample is its number of tokens"),
  };
}

// transformers' keys for smp_options.activation_checkpointing.
std::vector<Key> recompute_keys() {
  const Key recompute = shorthand(
      "activation_checkpointing", or_null(json_boolean()), nullptr, "smp_options.activation_checkpointing",
      [](const nlohmann::json& value) { return nlohmann::json(value == true ? "each" : "none"); },
      "true means smp_options.activation_checkpointing `each`, false means `none`.");
  const Key arguments = shorthand(
      "activation_checkpointing_kwargs", or_null(json_object()), nullptr, "smp_options.offload_activations",
      [](const nlohmann::json& value) {
        return value.contains("offload") && value["offload"].is_boolean() ? value["offload"] : nlohmann::json();
      },
      "`offload` means smp_options.offload_activations; `every_n_layers` must be 1; arguments of PyTorch's "
      "`checkpoint`, such as `use_reentrant`, have no effect.");
  return {recompute.also({"gradient_checkpointing"}), arguments.also({"gradient_checkpointing_kwargs"})};
}

std::vector<Key> precision_and_memory_keys() {
  const std::string mesh = "use smp_options";
  const JsonType optional_text = or_null(json_text());
  return {
      honoured("bf16", training_section, &Training::bf16, json_boolean(),
               "Weights and activations in bfloat16. Master weights, gradients and optimizer states stay in fp32, and "
               "losses, softmax and norms are computed in fp32; the saved model has the fp32 weights."),
      honoured("fp16", training_section, &Training::fp16, json_boolean(),
               "Like bf16, but in float16 and with loss scaling; see [loss scaling](#loss-scaling)."),
      honoured("static_loss_scale", training_section, &Training::static_loss_scale, json_number(1e-30, 1e38),
               "fp16: losses are multiplied, and gradients divided, by this factor."),
      honoured("dynamic_loss_scale", training_section, &Training::dynamic_loss_scale, json_boolean(),
               "fp16: adapt the scale to overflows. Unset: true, unless static_loss_scale is set."),
      honoured("dynamic_loss_args", training_section, &Training::dynamic_loss_args, or_null(json_any()),
               "fp16: arguments of the dynamic loss scale, an object."),
      honoured("fp32_residual_addition", training_section, &Training::fp32_residual_addition, json_boolean(),
               "Half precision: residuals are added in fp32, and sent between layers and stages in fp32."),
      honoured("attention_in_fp32", training_section, &Training::attention_in_fp32, json_boolean(),
               "Half precision: queries, keys and values are converted to fp32, and the whole attention runs in fp32."),
      honoured("query_key_layer_scaling", training_section, &Training::query_key_layer_scaling, json_boolean(),
               "fp16: products of queries and keys are divided by the block's number (from 1) before they are stored, "
               "and multiplied by it in the softmax."),
      honoured(
          "bf16_full_eval", training_section, &Training::bf16_full_eval, json_boolean(),
          "`shardline eval`, `predict` and `serve` run in bfloat16, regardless of the precision of training. As in "
          "transformers, evaluations during training keep the precision of training."),
      honoured("fp16_full_eval", training_section, &Training::fp16_full_eval, json_boolean(),
               "Like bf16_full_eval, but in float16."),
      honoured("tf32", training_section, &Training::tf32, json_boolean(),
               "GPUs: matrix products round their fp32 factors to TF32 (10 bits of mantissa) and add in fp32. Unset: "
               "false. true is refused without a GPU; see [precision](precision.md#tf32)."),
      no_effect("fp16_opt_level", json_text(), "O1", "version 4: only used with Apex"),
      no_effect("fp16_backend", json_text(), "auto", "version 4: there is one implementation of half precision here"),
      no_effect("half_precision_backend", json_text(), "auto",
                "version 4: there is one implementation of half precision here"),
      no_effect("torch_compile", json_boolean(), false, "there is no Python code to compile"),
      no_effect("torch_compile_backend", optional_text, nullptr, "there is no Python code to compile"),
      no_effect("torch_compile_mode", optional_text, nullptr, "there is no Python code to compile"),
      no_effect("torchdynamo", optional_text, nullptr, "version 4: there is no Python code to compile"),
      no_effect("jit_mode_eval", json_boolean(), false, "version 4: there is no Python code to compile"),
      no_effect("use_liger_kernel", json_boolean(), false, "changes no numbers"),
      no_effect("liger_kernel_config", or_null(json_object()), nullptr, "only used with use_liger_kernel"),
      no_effect("use_ipex", json_boolean(), false, "version 4: changes no numbers"),
      no_effect("use_cache", json_boolean(), false, "training keeps no attention cache"),
      no_effect("torch_empty_cache_steps", or_null(json_integer(1)), nullptr, "changes no numbers"),
      honoured("use_cpu", training_section, &Training::use_cpu, json_boolean(), "The same as runtime.device `cpu`.")
          .also({"no_cuda"}),
      no_effect("use_mps_device", json_boolean(), false, "version 4: this device is not supported"),
      refused("parallelism_config", nullptr, "Accelerate's layout.", mesh),
      refused("fsdp", nullptr, "PyTorch's sharded data parallelism.", mesh),
      refused("deepspeed", nullptr, "DeepSpeed's config.", mesh),
      refused("sharded_ddp", nullptr, "Version 4: Fairscale.", mesh),
      refused("mp_parameters", nullptr, "Version 4: SageMaker's parameters as a string.", mesh),
      no_effect("fsdp_config", json_any(), nullptr, "only used with fsdp"),
      no_effect("fsdp_min_num_params", json_integer(0), 0, "version 4: only used with fsdp"),
      no_effect("fsdp_transformer_layer_cls_to_wrap", optional_text, nullptr, "version 4: only used with fsdp"),
      no_effect("accelerate_config", json_any(), nullptr, "Accelerate is not used"),
      no_effect("accelerator_config", json_any(), nullptr, "Accelerate is not used; `split_batches` is refused"),
  };
}

std::vector<Key> logging_and_evaluation_keys() {
  const JsonType optional_text = or_null(json_text());
  const std::string tracker = "use tensorboard; trackers such as W&B can import its events";
  return {
      honoured("logging_strategy", training_section, &Training::logging_strategy,
               json_choice(words_of<LoggingStrategy>()),
               "When lines are printed to the console. `steps`: every logging_steps; `epoch`: after each epoch; `no`: "
               "never. Without a terminal, the first and the last step are always printed. metrics.jsonl has every "
               "step."),
      honoured("logging_steps", training_section, &Training::logging_steps, json_number(1e-9, kMostStepsOfRun),
               "Steps between lines on the console; a value below 1 is a fraction of all steps."),
      honoured("logging_first_step", training_section, &Training::logging_first_step, json_boolean(),
               "Also print a line for step 1 to the console."),
      honoured("report_to", training_section, &Training::report_to,
               json_texts(words_of<Tracker>({"wandb", "mlflow", "comet_ml", "trackio", "swanlab", "all"}, tracker)),
               "Where metrics are written in addition to metrics.jsonl."),
      refused("logging_dir", nullptr, "Version 4: where to write TensorBoard events.",
              "leave it out: they are written to output_dir, next to the other records of the run"),
      no_effect("log_level", json_text(), "passive", "changes no output"),
      no_effect("log_level_replica", json_text(), "warning", "only rank 0 writes lines"),
      no_effect("log_on_each_node", json_boolean(), true, "only rank 0 writes lines"),
      no_effect("logging_nan_inf_filter", json_boolean(), true, "metrics are written as they are"),
      no_effect("include_num_input_tokens_seen", json_any(), "no", "`metrics.jsonl` has the tokens of each step"),
      no_effect("include_tokens_per_second", json_boolean(), false,
                "version 4: `metrics.jsonl` always has the throughput"),
      honoured("disable_tqdm", training_section, &Training::disable_tqdm, json_boolean(),
               "true: print lines, as to a log file, instead of progress bars on terminals."),
      no_effect("run_name", optional_text, nullptr, "only used by trackers"),
      no_effect("project", json_text(), "huggingface", "only used by trackers"),
      no_effect("trackio_space_id", optional_text, nullptr, "only used by trackers"),
      no_effect("trackio_bucket_id", optional_text, nullptr, "only used by trackers"),
      no_effect("trackio_static_space_id", json_any(), nullptr, "only used by trackers"),
      no_effect("debug", json_any(), "", "only used in Python"),
      no_effect("skip_memory_metrics", json_boolean(), true, "`metrics.jsonl` always has the memory in use"),
      honoured("eval_strategy", training_section, &Training::eval_strategy, json_choice(words_of<EvalStrategy>()),
               "When to evaluate during training.")
          .also({"evaluation_strategy"}),
      honoured("eval_steps", training_section, &Training::eval_steps, json_number(1e-9, kMostStepsOfRun),
               "Steps between evaluations; a value below 1 is a fraction of all steps; unset: logging_steps."),
      honoured("eval_on_start", training_section, &Training::eval_on_start, json_boolean(), "Evaluate before step 1."),
      honoured("eval_delay", training_section, &Training::eval_delay, json_number(0, kMostStepsOfRun),
               "Steps (epochs with eval_strategy `epoch`) to wait before the first evaluation."),
      no_effect("eval_accumulation_steps", or_null(json_integer(1)), nullptr,
                "results are never collected on a device"),
      no_effect("eval_do_concat_batches", json_boolean(), true, "only used in Python"),
      no_effect("eval_use_gather_object", json_boolean(), false, "only used in Python"),
      no_effect("include_for_metrics", json_any(), nlohmann::json::array(), "only used in Python"),
      no_effect("include_inputs_for_metrics", json_boolean(), false, "version 4: only used in Python"),
      no_effect("batch_eval_metrics", json_boolean(), false, "metrics always work batch by batch"),
      no_effect("prediction_loss_only", json_boolean(), false, "metrics are always computed"),
      no_effect("label_names", or_null(json_texts()), nullptr, "the task determines the labels"),
      no_effect("past_index", json_integer(-1), -1, "version 4: no model here returns past states"),
      no_effect("do_train", json_boolean(), false, "the command decides: shardline train"),
      honoured("do_eval", training_section, &Training::do_eval, json_boolean(), "Also evaluate after the last step."),
      honoured("do_predict", training_section, &Training::do_predict, json_boolean(),
               "After training, make predictions for data.test with the final model (with load_best_model_at_end, the "
               "best one) and write them to `predictions.jsonl` in output_dir, as `shardline predict` does. Requires "
               "data.test, unlike `shardline predict`, which reads data.validation if data.test is unset."),
  };
}

std::vector<Key> saving_keys() {
  const JsonType optional_text = or_null(json_text());
  const std::string hub = "only used with push_to_hub";
  return {
      refused("output_dir", nullptr, "Belongs to the top level.", "move it to /output_dir"),
      honoured("overwrite_output_dir", training_section, &Training::overwrite_output_dir, json_boolean(),
               "Version 4: run even if output_dir is not empty. Records of the earlier run are removed; its model is "
               "moved to `previous-model/` until the new one is complete; its checkpoints are renamed to "
               "`checkpoint-N.superseded` and stay until you remove them."),
      honoured(
          "save_strategy", training_section, &Training::save_strategy, json_choice(words_of<SaveStrategy>()),
          "When to save a checkpoint: every save_steps, after each epoch, or when an evaluation is the best so far. "
          "The final model is always saved, and a run that is asked to stop saves a checkpoint."),
      honoured("save_steps", training_section, &Training::save_steps, json_number(1e-9, kMostStepsOfRun),
               "Steps between checkpoints; a value below 1 is a fraction of all steps."),
      honoured(
          "save_total_limit", training_section, &Training::save_total_limit, json_integer(1),
          "Maximum number of checkpoints to keep; when a new one is complete, the oldest are removed. The newest and, "
          "with load_best_model_at_end or save_strategy `best`, the best one always stay."),
      honoured("save_only_model", training_section, &Training::save_only_model, json_boolean(),
               "Save checkpoints without the optimizer's state; training cannot continue from them. A run that is "
               "asked to stop saves a checkpoint with the state."),
      refused("save_safetensors", true, "Version 4: save safetensors files, not pickle files.",
              "leave it out: this is always done"),
      honoured("save_on_each_node", training_section, &Training::save_on_each_node, json_boolean(),
               "If hosts do not share checkpoint_dir: save a complete checkpoint on every host, so that losing a host "
               "loses no data. Otherwise, each host saves the part that its ranks write."),
      no_effect("enable_jit_checkpoint", json_boolean(), false,
                "a run that is asked to stop always saves a checkpoint"),
      honoured("checkpoint_dir", training_section, &Training::checkpoint_dir, json_text(),
               "Ours: directory of the checkpoints; unset: output_dir."),
      honoured(
          "resume_from_checkpoint", training_section, &Training::resume_from_checkpoint, or_null(json_any()),
          "Continue a run: the directory of a checkpoint, or its name in checkpoint_dir, such as `\"checkpoint-500\"`; "
          "`true`: the newest one in checkpoint_dir that is intact; "
          "`\"auto\"`: the same, or start from scratch if checkpoint_dir has no checkpoints; "
          "`[\"auto\", DIRECTORY]`: the same, but start from this checkpoint instead of from scratch. The layout may "
          "differ from that of the run that saved it. See [checkpoints](checkpoints.md)."),
      honoured("resume_with_changes", training_section, &Training::resume_with_changes, json_boolean(),
               "Ours: continue even if settings or data that affect the loss curve have changed since the checkpoint; "
               "without it, the changes are listed and the run is refused."),
      no_effect("ignore_data_skip", json_boolean(), false,
                "the position in the data is found without reading any samples"),
      no_effect("restore_callback_states_from_checkpoint", json_boolean(), false, "there are no callbacks"),
      honoured("load_best_model_at_end", training_section, &Training::load_best_model_at_end, json_boolean(),
               "Save the weights of the checkpoint with the best evaluation as the final model."),
      honoured("metric_for_best_model", training_section, &Training::metric_for_best_model, json_text(),
               "Metric by which evaluations are compared, for the best checkpoint, for early stopping and for "
               "`reduce_lr_on_plateau`; unset: `loss`. docs/tasks.md lists the metrics of each task."),
      honoured("greater_is_better", training_section, &Training::greater_is_better, json_boolean(),
               "Whether a larger metric is better; unset: true unless the metric is a loss, a perplexity or an "
               "error."),
      honoured(
          "early_stopping_patience", training_section, &Training::early_stopping_patience,
          json_integer(1, kMostStepsOfRun),
          "As in transformers' EarlyStoppingCallback: training ends after this many evaluations in succession whose "
          "metric_for_best_model is not better than the best one before them. Unset: training never ends early."),
      honoured("early_stopping_threshold", training_section, &Training::early_stopping_threshold, json_number(0),
               "An evaluation counts as better only if its metric is better by more than this."),
      honoured("max_run_seconds", training_section, &Training::max_run_seconds, json_integer(1),
               "Ours: seconds after which the run saves a checkpoint and stops with exit code 3."),
      refused("push_to_hub", false, "Upload the model.",
              "upload output_dir, which is a model directory, yourself after the run"),
      no_effect("hub_model_id", optional_text, nullptr, hub),
      no_effect("hub_token", optional_text, nullptr, hub),
      no_effect("hub_private_repo", or_null(json_boolean()), nullptr, hub),
      no_effect("hub_strategy", json_text(), "every_save", hub),
      no_effect("hub_always_push", json_boolean(), false, hub),
      no_effect("hub_revision", optional_text, nullptr, hub),
      no_effect("push_to_hub_model_id", optional_text, nullptr, hub),
      no_effect("push_to_hub_organization", optional_text, nullptr, hub),
      no_effect("push_to_hub_token", optional_text, nullptr, hub),
  };
}

std::vector<Key> process_keys() {
  const JsonType optional_flag = or_null(json_boolean());
  const std::string loader = "samples do not depend on how they are loaded";
  const std::string reducer = "gradients are reduced by shardline's own reducer";
  return {
      no_effect("dataloader_num_workers", json_integer(0), 0, loader),
      no_effect("dataloader_pin_memory", json_boolean(), true, loader),
      no_effect("dataloader_persistent_workers", json_boolean(), false, loader),
      no_effect("dataloader_prefetch_factor", or_null(json_integer(1)), nullptr, loader),
      no_effect("dataloader_multiprocessing_context", or_null(json_text()), nullptr, loader),
      no_effect("dataloader_in_order", json_boolean(), true, loader),
      refused("split_batches", nullptr,
              "Version 4: let per_device_train_batch_size be the batch size of all devices together.",
              "set global_batch_size"),
      no_effect("dispatch_batches", optional_flag, nullptr, "version 4: " + loader),
      no_effect("remove_unused_columns", json_boolean(), true, "only the columns that the task needs are read"),
      no_effect("ddp_find_unused_parameters", optional_flag, nullptr, reducer),
      no_effect("ddp_bucket_cap_mb", or_null(json_integer(1)), nullptr, reducer),
      no_effect("ddp_broadcast_buffers", optional_flag, nullptr, reducer),
      no_effect("ddp_static_graph", optional_flag, nullptr, reducer),
      no_effect("ddp_backend", or_null(json_text()), nullptr, "`runtime.communicator` chooses"),
      honoured("ddp_timeout", training_section, &Training::ddp_timeout, json_integer(1, kLongestTimeout),
               "Seconds that a rank waits for other ranks in one operation before the job fails; the environment "
               "variable SHARDLINE_TIMEOUT_SECONDS overrides it. See docs/collectives.md."),
      no_effect("local_rank", json_integer(-1), -1, "ranks come from MPI"),
      no_effect("ray_scope", or_null(json_text()), "last", "version 4: only used in Python"),
      no_effect("xpu_backend", or_null(json_text()), nullptr, "version 4: this device is not supported"),
      no_effect("tpu_num_cores", or_null(json_integer(1)), nullptr, "version 4: this device is not supported"),
      no_effect("tpu_metrics_debug", json_boolean(), false, "version 4: this device is not supported"),
  };
}

}  // namespace

std::vector<Key> training_keys() {
  std::vector<Key> keys;
  for (const auto& group : {batch_keys(), optimization_keys(), precision_and_memory_keys(), recompute_keys(),
                            logging_and_evaluation_keys(), saving_keys(), process_keys()})
    keys.insert(keys.end(), group.begin(), group.end());
  return keys;
}

}  // namespace shardline

#include "engine/config/rules/checks.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "engine/config/rules/learning_rate_rules.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/program_rules.h"
#include "engine/config/rules/shell_words.h"
#include "models/program/program_inputs.h"
#include "models/traced/program_head.h"
#include "pipeline/schedule/kinds/schedule_choice.h"

namespace shardline {
namespace {

void check_value(const std::string& key, const Complaint& complain, const std::function<void()>& read) {
  report_mistakes(read, [&](const std::string& rule, const std::string& advice) { complain(key, rule, advice); });
}

void check_partition(const Config& config, const Complaint& complain) {
  const SmpOptions& smp = config.smp;
  if (smp.pipeline_parallel_degree != kAuto && smp.default_partition.value_or(0) >= smp.pipeline_parallel_degree)
    complain("smp_options.default_partition", cat("must be < pipeline_parallel_degree ", smp.pipeline_parallel_degree),
             "leave it out");
  if (smp.manual_partition != PartitionByHand() && smp.auto_partition)
    complain("smp_options.manual_partition", "contradicts auto_partition true", "set auto_partition to false");
  if (smp.load_partition && !smp.auto_partition)
    complain("smp_options.load_partition", "contradicts auto_partition false", "keep one of them");
}

void check_sharding(const Config& config, const Complaint& complain) {
  const SmpOptions& smp = config.smp;
  const bool weights = smp.sharded_data_parallel_degree > 1;
  if (weights && (smp.shard_optimizer_state || smp.shard_gradients))
    complain("smp_options.sharded_data_parallel_degree",
             cat(smp.sharded_data_parallel_degree, " contradicts ",
                 smp.shard_gradients ? "shard_gradients" : "shard_optimizer_state",
                 ": it already shards optimizer state and gradients"),
             "keep one of them");
  if (smp.sharded_data_parallel_degree == kAuto && (smp.shard_optimizer_state || smp.shard_gradients))
    complain("smp_options.sharded_data_parallel_degree",
             cat("\"auto\" chooses ", smp.shard_gradients ? "shard_gradients" : "shard_optimizer_state", ", too"),
             "leave that key out, or set the degree to a number");
}

bool has_files(const DataOptions& data) {
  return !data.train.empty() || !data.validation.empty();
}

}  // namespace

void report_mistakes(const std::function<void()>& read,
                     const std::function<void(const std::string& rule, const std::string& advice)>& report) {
  try {
    read();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    const size_t cut = std::min(text.find("; "), text.size());
    report(text.substr(0, cut), text.substr(std::min(cut + 2, text.size())));
  }
}

// Reports what does not fit a model whose samples are columns of tensors.
void check_columns(const Config& config, const Complaint& complain) {
  const DataFormat format = config.data.format;
  if (format == DataFormat::tokens || format == DataFormat::text)
    complain("data.format", "is a format without columns, but the model takes columns of tensors",
             "use .safetensors files, or rows that name .npy files");
  if (config.data.task_name)
    complain("data.task_name", "names a data set of texts, but the model takes columns of tensors", "leave it out");
  if (config.task == kSequenceClassification && !config.data.tokenizer.empty())
    complain("data.tokenizer", "has no effect, because the model takes columns of tensors", "leave it out");
}

// Whether the data need no tokenizer although the model has none.
bool has_no_texts(const Config& config) {
  const DataFormat format = config.data.format;
  return format == DataFormat::tokens || format == DataFormat::memory ||
         (config.task == kSequenceClassification && reads_columns(config));
}

// Reports a loss that program_use() cannot read.
void check_loss(const Config& config, const Complaint& complain) {
  Config one = config;
  one.model.inputs = nlohmann::json::object();
  check_value("model.loss", complain, [&] { program_use(one, nlohmann::json::object()); });
}

// Reports what no exported program can do, whatever it contains.
void check_program(const Config& config, const Complaint& complain) {
  for (const auto& [key, value] : config.model.config.items())
    if (!is_program_key(key))
      complain("model.config." + key, "overrides a key of a config.json, but model.path is an exported program",
               "leave it out, and export the program with this key");
  check_loss(config, complain);
  Config without_loss = config;
  without_loss.model.loss = nullptr;
  check_value("model.inputs", complain, [&] { program_use(without_loss, config.model.config); });
  if (!config.model.pretrained())
    complain("model.init", "an exported program starts with the weights in its file",
             "leave it out, and export the program with other weights");
  if (config.data.tokenizer.empty() && !has_no_texts(config))
    complain(
        "data.tokenizer", "is required with an exported program, which has none",
        "give a directory, a tokenizer.json or \"bytes\"; if the program takes tensors, such as images, name their "
        "columns of the data in model.inputs");
  if (reads_columns(config)) check_columns(config, complain);
}

// Reports what no traced model can do.
void check_traced(const Config& config, const Complaint& complain) {
  const auto columns = traced_columns(config);
  std::string names;
  for (const auto& column : columns) names += cat(names.empty() ? "" : ", ", column.name);
  const ProgramUse of_tokens{.predicts = predicts_of(traits_of(config.task).head)};
  for (const auto& [argument, given] : config.model.inputs.items()) {
    if (std::ranges::find(columns, argument, &TensorColumn::name) == columns.end())
      complain("model.inputs",
               cat("names the argument \"", argument, "\", but in a traced model, only arguments that are columns of ",
                   "tensors may be given columns of other names; such arguments: ", names.empty() ? "none" : names),
               "leave it out, and see TracedModel::arguments and columns");
    else if (!given.is_string() || given.get<std::string>().empty() || is_given(given.get<std::string>(), of_tokens))
      complain("model.inputs",
               cat("takes the column \"", argument, "\" from ", given.dump(), ", which is not a column of tensors"),
               "name a column of tensors");
  }
  check_loss(config, complain);
  if (reads_columns(config))
    check_columns(config, complain);
  else if (!columns.empty())
    complain("task", cat("the model takes columns of tensors, which \"", config.task, "\" does not have"),
             "register it for sequence-classification or seq2seq-lm");
}

void check_has_data(const Config& config, const Complaint& complain) {
  if (!has_files(config.data) && config.data.format != DataFormat::memory)
    complain("data.train", "data.train or data.validation is required", "give a file or a list of files");
}

void check_model_and_data(const Config& config, const Complaint& complain) {
  const bool has_config = !config.model.config.empty();
  if (config.model.path.empty() && !has_config)
    complain("model.path", "model.path or model.config is required",
             "set a model directory, or a config such as {\"model_type\": \"gpt2\", \"n_layer\": 4, ...}");
  if (config.model.path.empty() && has_config && config.model.pretrained())
    complain("model.init", "\"pretrained\" needs model.path",
             "set it to the directory with the weights, or use \"random\"");
  const bool in_memory = config.data.format == DataFormat::memory;
  if (in_memory && has_files(config.data))
    complain("data.format", "\"memory\" has no files: a program gives its samples to a Trainer",
             "leave it out, or leave out data.train and data.validation");
  const bool follows_program = reads_columns(config);  // the program determines the length of samples
  if (config.data.sequence_length < 2 && !in_memory && !follows_program)
    complain("data.sequence_length", "must be at least 2: with one token, there is nothing to predict",
             "use longer samples");
  if (config.data.tokenizer.empty() && config.model.path.empty() && !has_no_texts(config))
    complain("data.tokenizer", "is required when there is no model.path to take it from",
             "give a directory, a tokenizer.json or \"bytes\"");
  if (config.model.is_program()) {
    check_program(config, complain);
  } else if (is_traced(config.model)) {
    check_traced(config, complain);
  } else {
    if (config.task == kSeq2SeqLm)
      complain("task", "\"seq2seq-lm\" needs an exported program of an encoder with a decoder",
               "set model.path to one (docs/programs.md)");
    if (!config.model.inputs.empty())
      complain("model.inputs", "is for exported programs, but model.path is not one", "leave it out");
    if (!config.model.loss.is_null())
      complain("model.loss", "is for exported programs, but model.path is not one", "leave it out");
  }
  if (config.task == kSeq2SeqLm && !follows_program && config.data.max_target_length >= config.data.sequence_length)
    complain("data.max_target_length",
             cat("must be smaller than sequence_length (", config.data.sequence_length,
                 "), which leaves tokens for the source"),
             "make it smaller");
  if (config.data.task_name && config.task != kSequenceClassification)
    complain("data.task_name", cat("has rows of task \"sequence-classification\", but task is \"", config.task, '"'),
             "set task, or leave this out");
  if (config.data.completion_only_loss &&
      (config.data.packing == Packing::wrapped || config.data.packing == Packing::wrapped_reset))
    complain("data.packing",
             cat('"', word_of(*config.data.packing),
                 "\" separates prompts from their completions, but completion_only_loss "
                 "is true"),
             "use \"bfd\" or \"none\"");
  if (!config.data.validation_mismatched.empty()) {
    if (config.data.task_name != DataName::mnli)
      complain("data.validation_mismatched", "is only used with task_name \"mnli\"", "leave it out");
    else if (config.data.validation.empty())
      complain("data.validation_mismatched", "is evaluated in addition to validation", "give data.validation, too");
  }
  if (const auto& weights = config.data.train_weights; !weights.empty()) {
    if (weights.size() != config.data.train.size())
      complain("data.train_weights",
               cat("must have a number for each of the ", config.data.train.size(), " files or folders of data.train"),
               "give as many, or leave it out");
    if (config.data.max_train_samples || config.data.validation_split_percentage > 0)
      complain("data.train_weights",
               cat("cannot be used together with ",
                   config.data.max_train_samples ? "max_train_samples" : "validation_split_percentage"),
               "limit or divide the files themselves");
  }
  if (!config.data.validation.empty() && config.data.validation_split_percentage > 0)
    complain("data.validation_split_percentage", "contradicts data.validation", "leave one of them out");
}

void check_model_config(const Config& config, const Complaint& complain) {
  const auto model = described_model(config.model, head_choice(config));
  if (!model) return;
  // Keys of a directory's config.json are not in the config file. Without a directory, missing keys must be added to
  // model.config.
  const bool is_whole = config.model.path.empty();
  for (const auto& mistake : model->mistakes) {
    if (mistake.of_task)
      complain(mistake.key, mistake.rule, mistake.advice);
    else if (mistake.overridden || is_whole)
      complain("model.config." + mistake.key, mistake.rule, mistake.advice);
  }
  if (model->mistakes.empty() && config.data.sequence_length > model->max_positions)
    complain("data.sequence_length",
             cat("must be at most the number of the model's positions (", model->max_positions, ')'),
             cat("use shorter samples",
                 config.data.sequence_length == DataOptions().sequence_length ? " (the default is 1024)" : "",
                 ", or a model with more positions"));
}

void check_training(const Config& config, const Complaint& complain) {
  const TrainingOptions& training = config.training;
  if (training.max_steps == 0) complain("training.max_steps", "must be -1 or >= 1", "use -1 to count epochs");
  if (training.max_steps < 0 && training.num_train_epochs <= 0)
    complain("training.num_train_epochs", "must be > 0 when max_steps is -1", "give one of them");
  check_value("training.warmup_steps", complain, [&] { check_warmup_steps(training.warmup_steps); });
  check_value("training.lr_scheduler_kwargs", complain, [&] {
    learning_rate_options(training, training.max_steps > 0 ? std::optional<int64_t>(training.max_steps) : std::nullopt);
    if (training.lr_scheduler_type == RateSchedule::reduce_lr_on_plateau) plateau_options(training);
  });
  if (training.do_predict && config.data.test.empty())
    complain("training.do_predict", "needs data.test", "name the files to predict for, or leave it out");
  if (training.do_predict && (traits_of(config.task).head == HeadChoice::Kind::causal_lm || config.task == kSeq2SeqLm))
    complain("training.do_predict", "language models predict nothing but text",
             "use shardline generate after the run, or another task");
  check_value("training.optim_args", complain, [&] { optimizer_options(training); });
}

void check_determinism(const Config& config, const Complaint& complain) {
  if (config.training.full_determinism && config.runtime.device == DeviceChoice::cuda)
    complain("training.full_determinism", "is not supported on GPUs, but runtime.device is \"cuda\"",
             "leave it out, or use \"cpu\"");
}

void check_precision(const Config& config, const Complaint& complain) {
  const TrainingOptions& training = config.training;
  if (training.bf16 && training.fp16) complain("training.fp16", "contradicts bf16", "keep one of them");
  if (training.bf16_full_eval && training.fp16_full_eval)
    complain("training.fp16_full_eval", "contradicts bf16_full_eval", "keep one of them");
  if ((training.bf16_full_eval || training.fp16_full_eval) && config.runtime.dtype == FullType::float64)
    complain(training.bf16_full_eval ? "training.bf16_full_eval" : "training.fp16_full_eval",
             "contradicts runtime.dtype \"float64\"", "keep one of them");
  if ((training.bf16 || training.fp16) && config.runtime.dtype == FullType::float64)
    complain(training.bf16 ? "training.bf16" : "training.fp16", "contradicts runtime.dtype \"float64\"",
             "keep one of them");
  if (training.dynamic_loss_scale == true && training.static_loss_scale)
    complain("training.static_loss_scale", "contradicts dynamic_loss_scale true",
             "leave one of them out; dynamic_loss_args.init_scale is the first scale");
  if (training.dynamic_loss_args && !training.dynamic_loss_scale.value_or(!training.static_loss_scale))
    complain("training.dynamic_loss_args", "is only used with a dynamic loss scale",
             "set dynamic_loss_scale to true, or leave it out");
}

void check_evaluation(const Config& config, const Complaint& complain) {
  const TrainingOptions& training = config.training;
  if (training.eval_steps && training.eval_strategy == EvalStrategy::epoch)
    complain("training.eval_steps", "contradicts eval_strategy \"epoch\"", "leave it out, or use \"steps\"");
}

void check_layout(const Config& config, const Complaint& complain) {
  const SmpOptions& smp = config.smp;
  if (smp.ddp == false && smp.tensor_parallel_degree > 1)
    complain("smp_options.ddp", cat("must be true with tensor_parallel_degree ", smp.tensor_parallel_degree),
             "leave it out");
  check_partition(config, complain);
  check_sharding(config, complain);
}

bool check_auto(const Config& config, const Complaint& complain) {
  const SmpOptions& smp = config.smp;
  const std::pair<const char*, int> degrees[] = {{"pipeline_parallel_degree", smp.pipeline_parallel_degree},
                                                 {"tensor_parallel_degree", smp.tensor_parallel_degree},
                                                 {"microbatches", smp.microbatches},
                                                 {"virtual_pipeline_degree", smp.virtual_pipeline_degree},
                                                 {"sharded_data_parallel_degree", smp.sharded_data_parallel_degree}};
  const auto found =
      std::find_if(std::begin(degrees), std::end(degrees), [](const auto& degree) { return degree.second == kAuto; });
  if (found == std::end(degrees)) return false;
  const std::string key = cat("smp_options.", found->first);
  const TrainingOptions& training = config.training;
  if (!training.global_batch_size)
    complain(key, "\"auto\" needs training.global_batch_size",
             "set the number of samples in a step, which must not depend on the layout");
  if (training.global_batch_size && (training.per_device_train_batch_size || training.gradient_accumulation_steps))
    complain(key, "\"auto\" determines how the global batch is split",
             "leave training.per_device_train_batch_size and gradient_accumulation_steps out");
  if (smp.pipeline.is_file())
    complain(key, "\"auto\" contradicts a file of instructions, which has its own number of stages and microbatches",
             "give numbers, or a named schedule");
  if (smp.virtual_pipeline_degree == kAuto && smp.pipeline.kind != ScheduleKind::interleaved_1f1b)
    complain("smp_options.virtual_pipeline_degree", cat("pipeline \"", smp.pipeline, "\" sets it"),
             "leave it out, or use \"interleaved_1f1b\"");
  if (smp.load_partition || !smp.auto_partition)
    complain(key, "\"auto\" contradicts an explicit partition", "give numbers, or leave the partition out");
  return true;
}

void check_ranks_of_host(const Config& config, const Complaint& complain) {
  const bool here = plans_for_this_machine(config);
  const int most = here ? Cluster::kMostDevicesOfNode : Cluster::kMostDevices / available_hosts(config);
  if (config.mpi.processes_per_host > most)
    complain("mpi_options.processes_per_host", cat("must be at most ", most),
             here ? "to plan for other machines, name them in cluster" : "give the ranks on each host");
}

void check_processes(const Config& config, const Complaint& complain) {
  const int world_size = configured_world_size(config);
  const RuntimeOptions& runtime = config.runtime;
  if (!config.mpi.hosts.empty() && config.mpi.processes_per_host == 0)
    complain("mpi_options.processes_per_host", "is required with mpi_options.hosts", "give the ranks on each host");
  if (!config.mpi.enabled && world_size > 1 && runtime.communicator != CommunicatorChoice::threads)
    complain("mpi_options.enabled", cat("must be true for ", world_size, " ranks"),
             "leave it out, or set runtime.communicator to \"threads\"");
  if (runtime.communicator == CommunicatorChoice::local && world_size > 1)
    complain("runtime.communicator", cat("\"local\" is one rank, not ", world_size),
             "use \"auto\", or degrees of 1 and processes_per_host 1");
  if (runtime.communicator == CommunicatorChoice::threads && config.mpi.hosts.size() > 1)
    complain("runtime.communicator", "\"threads\" is one process on one host", "use \"mpi\" or \"nccl\"");
  if (runtime.communicator == CommunicatorChoice::threads && runtime.threads_per_rank > 1)
    complain("runtime.threads_per_rank", "must be 1 with communicator \"threads\", whose ranks are threads",
             "leave it out, or use \"mpi\"");
  if (runtime.communicator == CommunicatorChoice::nccl && runtime.device == DeviceChoice::cpu)
    complain("runtime.communicator", "\"nccl\" needs GPUs, but the device is \"cpu\"", "use \"mpi\" or \"auto\"");
  if (config.smp.ddp_dist_backend == CommunicatorChoice::nccl) {
    if (runtime.device == DeviceChoice::cpu)
      complain("smp_options.ddp_dist_backend", "\"nccl\" needs GPUs, but runtime.device is \"cpu\"", "use \"auto\"");
    if (runtime.communicator != CommunicatorChoice::automatic && runtime.communicator != CommunicatorChoice::nccl)
      complain("smp_options.ddp_dist_backend",
               cat("\"nccl\" contradicts runtime.communicator \"", word_of(runtime.communicator), '"'),
               "leave one of them out");
  }
  check_value("mpi_options.custom_mpi_options", complain, [&] { shell_words(config.mpi.custom_mpi_options); });
  // How many samples are dropped follows from the batch of the data loader, which would change with the accumulation.
  const TrainingOptions& training = config.training;
  if (config.mpi.elastic && training.dataloader_drop_last && !training.global_batch_size &&
      training.gradient_accumulation_steps.value_or(1) > 1)
    complain("mpi_options.elastic",
             "with training.dataloader_drop_last and gradient_accumulation_steps needs training.global_batch_size",
             "set it in place of per_device_train_batch_size");
  if (runtime.memory_cap > 0 && runtime.communicator == CommunicatorChoice::threads && world_size > 1)
    complain("runtime.memory_cap", cat("limits a process, but with \"threads\", ", world_size, " ranks share one"),
             "use runtime.communicator \"mpi\", or leave it out");
  if (runtime.memory_cap > 0 && runtime.device == DeviceChoice::cuda)
    complain("runtime.memory_cap", "is for CPU tensors, but the device is \"cuda\"", "leave it out");
}

}  // namespace shardline

#include "engine/config/keys/registry.h"

#include <map>

#include "core/error.h"

namespace shardline {
namespace {

// Names used by other trainers. All of our own names are added to them.
const std::map<std::string, std::string>& foreign_spellings() {
  static const std::map<std::string, std::string> spellings = {
      // Megatron-LM
      {"tensor_model_parallel_size", "smp_options.tensor_parallel_degree"},
      {"pipeline_model_parallel_size", "smp_options.pipeline_parallel_degree"},
      {"num_layers_per_virtual_pipeline_stage", "smp_options.virtual_pipeline_degree"},
      {"virtual_pipeline_model_parallel_size", "smp_options.virtual_pipeline_degree"},
      {"sequence_parallel", "smp_options.optimize = \"memory\""},
      {"micro_batch_size", "training.per_device_train_batch_size (cut into smp_options.microbatches)"},
      {"train_iters", "training.max_steps"},
      {"lr", "training.learning_rate"},
      {"lr_decay_style", "training.lr_scheduler_type"},
      {"lr_warmup_iters", "training.warmup_steps"},
      {"lr_warmup_fraction", "training.warmup_steps (a share below 1)"},
      {"clip_grad", "training.max_grad_norm"},
      {"log_interval", "training.logging_steps"},
      {"eval_interval", "training.eval_steps"},
      {"save_interval", "training.save_steps"},
      {"recompute_activations", "smp_options.activation_checkpointing"},
      {"recompute_granularity", "smp_options.activation_checkpointing"},
      {"use_distributed_optimizer", "smp_options.shard_optimizer_state"},
      {"seq_length", "data.sequence_length"},
      {"data_path", "data.train (and data.train_weights)"},
      {"num_layers", "model.config.num_hidden_layers"},
      {"hidden_size", "model.config.hidden_size"},
      {"num_attention_heads", "model.config.num_attention_heads"},
      // torchtitan
      {"local_batch_size", "training.per_device_train_batch_size"},
      {"steps", "training.max_steps"},
      {"max_norm", "training.max_grad_norm"},
      {"seq_len", "data.sequence_length"},
      {"dump_folder", "output_dir"},
      {"log_freq", "training.logging_steps"},
      {"pipeline_parallel_schedule", "smp_options.pipeline"},
      {"pipeline_parallel_microbatch_size", "smp_options.microbatches (a count)"},
      {"data_parallel_shard_degree", "smp_options.sharded_data_parallel_degree"},
      {"data_parallel_replicate_degree", "mpi_options.processes_per_host (replicas = world size / (P x T))"},
      // DeepSpeed
      {"train_batch_size", "training.global_batch_size"},
      {"train_micro_batch_size_per_gpu", "training.per_device_train_batch_size"},
      {"gradient_clipping", "training.max_grad_norm"},
      {"zero_optimization", "smp_options.shard_optimizer_state"},
      // transformers' example scripts
      {"model_name_or_path", "model.path"},
      {"config_name", "model.config"},
      {"tokenizer_name", "data.tokenizer"},
      {"probabilities", "data.train_weights"},
      {"interleave_probs", "data.train_weights"},
      {"train_file", "data.train"},
      {"validation_file", "data.validation"},
      {"block_size", "data.sequence_length"},
      {"max_seq_length", "data.sequence_length"},
      {"test_file", "data.test"},
      {"do_regression", "model.config.num_labels = 1"},
      {"config_overrides", "model.config"},
      {"text_column_name", "data.text_column"},
      {"text_column_names", "data.text_column (and data.text_pair_column)"},
      {"label_column_name", "data.label_column"},
      {"metric_name", "training.metric_for_best_model"},
      {"shuffle_train_dataset", "data.max_samples_seed"},
      {"shuffle_seed", "data.max_samples_seed"},
      // short forms
      {"batch_size", "training.per_device_train_batch_size"},
      {"epochs", "training.num_train_epochs"},
      {"tp", "smp_options.tensor_parallel_degree"},
      {"pp", "smp_options.pipeline_parallel_degree"},
      {"dp", "mpi_options.processes_per_host (replicas = world size / (P x T))"},
      {"num_microbatches", "smp_options.microbatches"},
      {"schedule", "smp_options.pipeline"},
      {"smp", "smp_options"},
      {"mpi", "mpi_options"},
      {"training_args", "training"},
      {"dataset", "data"},
  };
  return spellings;
}

bool is_empty(const nlohmann::json& value) {
  return value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {
      {"", "Besides these keys, the top level holds the sections below.", top_level_keys()},
      {"model", "The model to train.", model_keys()},
      {"data", "The data to train and evaluate on.", data_keys()},
      {"training",
       "The training loop: `TrainingArguments` of transformers 5, the spellings of version 4, and keys of our own "
       "(\"Ours\").",
       training_keys()},
      {"smp_options",
       "Model parallelism: the parameters of SageMaker's library, versions 1.x, and keys of our own (\"Ours\").",
       smp_keys()},
      {"mpi_options", "How the ranks are started.", mpi_keys()},
      {"runtime", "The machine.", runtime_keys()},
  };
  return sections;
}

std::string setting_of(const Section& section, const Key& key) {
  return key.writes.empty() ? section.name + "." + key.name : key.writes;
}

const Key& key_named(const std::string& full_name) {
  for (const auto& section : config_sections())
    for (const auto& key : section.keys)
      if (full_name == section.name + "." + key.name) return key;
  SL_ASSERT(false, "there is no key ", full_name);
}

const JsonHints& spelling_hints() {
  static const JsonHints hints = [] {
    JsonHints all = foreign_spellings();
    for (const auto& section : config_sections())
      for (const auto& key : section.keys)
        if (key.status == Status::honoured)
          all.emplace(key.name, (section.name.empty() ? "" : section.name + ".") + key.name);
    return all;
  }();
  return hints;
}

std::string status_name(Status status) {
  switch (status) {
    case Status::honoured:
      return "honoured";
    case Status::no_effect:
      return "no effect";
    case Status::refused:
      return "refused";
  }
  return "";
}

Key Key::also(std::vector<std::string> spellings) const {
  Key key = *this;
  key.aliases = std::move(spellings);
  return key;
}

Key Key::whose_default_is(nlohmann::json value) const {
  Key key = *this;
  key.default_value = std::move(value);
  return key;
}

std::vector<std::string> Key::spellings() const {
  std::vector<std::string> all = {name};
  all.insert(all.end(), aliases.begin(), aliases.end());
  return all;
}

nlohmann::json Key::meaning_of(const nlohmann::json& value) const {
  return value.is_null() || !means ? value : means(value);
}

bool Key::is_default(const nlohmann::json& value) const {
  return value == default_value || (default_value.is_null() && is_empty(value));
}

Key shorthand(std::string name, JsonType type, nlohmann::json default_value, std::string writes,
              std::function<nlohmann::json(const nlohmann::json&)> means, std::string meaning) {
  return {.name = std::move(name),
          .type = std::move(type),
          .default_value = std::move(default_value),
          .meaning = std::move(meaning),
          .writes = std::move(writes),
          .means = std::move(means)};
}

Key no_effect(std::string name, JsonType type, nlohmann::json default_value, std::string reason) {
  return {.name = std::move(name),
          .type = std::move(type),
          .default_value = std::move(default_value),
          .status = Status::no_effect,
          .meaning = "",
          .advice = std::move(reason)};
}

Key refused(std::string name, nlohmann::json default_value, std::string meaning, std::string advice) {
  return {.name = std::move(name),
          .type = json_any(),
          .default_value = std::move(default_value),
          .status = Status::refused,
          .meaning = std::move(meaning),
          .advice = std::move(advice)};
}

}  // namespace shardline

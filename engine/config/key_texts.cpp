#include "engine/config/key_texts.h"

#include <cctype>
#include <map>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;
using Kind = JsonType::Kind;

// Examples, as JSON, for keys for which no example can be derived from type and default.
const std::map<std::string, const char*>& chosen_examples() {
  static const std::map<std::string, const char*> examples = {
      {"output_dir", R"("runs/my-run")"},
      {"cluster", R"("configs/clusters/p4d.24xlarge.json")"},
      {"profile", R"("runs/my-run/profile.json")"},
      {"model.path", R"("models/gpt2")"},
      {"model.config", R"({"n_layer": 24})"},
      {"model.inputs", R"({"tokens": "input_ids"})"},
      {"model.loss", R"("loss")"},
      {"data.train", R"(["data/part-0.jsonl", "data/part-1.jsonl"])"},
      {"data.validation", R"("data/validation.jsonl")"},
      {"data.validation_mismatched", R"("data/validation_mismatched.jsonl")"},
      {"data.test", R"("data/test.jsonl")"},
      {"data.text_pair_column", R"("hypothesis")"},
      {"data.prefix", R"("summarize: ")"},
      {"data.tokenizer", R"("models/gpt2")"},
      {"data.max_train_samples", R"(1000)"},
      {"data.max_eval_samples", R"(100)"},
      {"data.max_predict_samples", R"(100)"},
      {"data.validation_split_percentage", R"(5)"},
      {"training.global_batch_size", R"(32)"},
      {"training.gradient_accumulation_steps", R"(4)"},
      {"training.max_steps", R"(1000)"},
      {"training.lr_scheduler_kwargs", R"({"num_cycles": 0.5})"},
      {"training.warmup_steps", R"(100)"},
      {"training.warmup_ratio", R"(0.1)"},
      {"training.optim_args", R"("momentum=0.9")"},
      {"training.weight_decay", R"(0.01)"},
      {"training.no_decay_patterns", R"("*wte*")"},
      {"training.max_grad_value", R"(1.0)"},
      {"training.label_smoothing_factor", R"(0.1)"},
      {"training.neftune_noise_alpha", R"(5.0)"},
      {"training.trainable", R"(["head.*", "h.11.*"])"},
      {"training.static_loss_scale", R"(1024.0)"},
      {"training.dynamic_loss_args", R"({"init_scale": 65536})"},
      {"training.activation_checkpointing_kwargs", R"({"offload": true})"},
      {"training.logging_steps", R"(10)"},
      {"training.eval_steps", R"(100)"},
      {"training.eval_delay", R"(1000)"},
      {"training.save_total_limit", R"(2)"},
      {"training.checkpoint_dir", R"("/scratch/my-run")"},
      {"training.resume_from_checkpoint", R"("auto")"},
      {"training.metric_for_best_model", R"("accuracy")"},
      {"training.early_stopping_patience", R"(3)"},
      {"training.early_stopping_threshold", R"(0.001)"},
      {"training.max_run_seconds", R"(3600)"},
      {"smp_options.pipeline_parallel_degree", R"(2)"},
      {"smp_options.tensor_parallel_degree", R"(2)"},
      {"smp_options.tensor_parallel_layers", R"([{"pattern": "h.[0-3].mlp", "split": false}])"},
      {"smp_options.microbatches", R"(8)"},
      {"smp_options.active_microbatches", R"(4)"},
      {"smp_options.virtual_pipeline_degree", R"(2)"},
      {"smp_options.pipeline", R"("interleaved_1f1b")"},
      {"smp_options.manual_partition", R"([6, 6])"},
      {"smp_options.partition_file", R"("runs/my-run/plan.json")"},
      {"smp_options.memory_weight", R"(0.5)"},
      {"smp_options.activation_checkpointing", R"("each")"},
      {"smp_options.offload_path", R"("/scratch")"},
      {"smp_options.sharded_data_parallel_degree", R"(8)"},
      {"smp_options.sdp_gradient_clipping", R"(1.0)"},
      {"mpi_options.processes_per_host", R"(8)"},
      {"mpi_options.custom_mpi_options", R"("--mca btl_tcp_if_include eth0")"},
      {"mpi_options.hosts", R"(["node-0", "node-1"])"},
      {"mpi_options.max_restarts", R"(3)"},
      {"runtime.threads_per_rank", R"(4)"},
      {"runtime.memory_cap", R"("8GiB")"},
  };
  return examples;
}

bool is_available(const JsonChoice& choice) {
  return choice.advice.empty() && !choice.value.starts_with("*.");
}

bool is_word(const JsonType& type) {
  return type.kind == Kind::text || type.kind == Kind::texts;
}

}  // namespace

std::string full_name(const Section& section, const Key& key) {
  return section.name.empty() ? key.name : section.name + "." + key.name;
}

std::string type_text(const Key& key) {
  std::string later;
  for (const auto& choice : key.type.choices)
    if (!choice.advice.empty() && key.type.kind != Kind::integer) later += (later.empty() ? "" : ", ") + choice.value;
  return key.type.describe() + (later.empty() ? "" : cat(" (not available: ", later, ")"));
}

std::string default_text(const Key& key) {
  const json& value = key.default_value;
  return value.is_null() || value == "" || (value.is_structured() && value.empty()) ? "unset" : value.dump();
}

std::string meaning_text(const Key& key) {
  if (key.advice.empty()) return key.meaning;
  if (!key.meaning.empty()) return cat(key.meaning, " Instead: ", key.advice, ".");
  std::string advice = key.advice;
  const unsigned char first = advice[0];
  advice[0] = std::toupper(first);
  return advice + ".";
}

std::string without_markdown(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') {
      const size_t middle = text.find("](", i), end = text.find(')', i);
      if (middle != std::string::npos && end != std::string::npos && middle < end && text.find('[', i + 1) > middle) {
        plain += text.substr(i + 1, middle - i - 1);
        i = end;
        continue;
      }
    }
    if (text[i] != '`') plain += text[i];
  }
  return plain;
}

std::string plain_meaning(const Key& key) {
  return without_markdown(meaning_text(key));
}

json example_value(const Section& section, const Key& key) {
  if (key.status != Status::honoured) return {};
  const auto chosen = chosen_examples().find(full_name(section, key));
  if (chosen != chosen_examples().end()) return json::parse(chosen->second);
  if (key.type.kind == Kind::boolean) return key.default_value != true;
  if (is_word(key.type))
    for (const auto& choice : key.type.choices)
      if (is_available(choice) && choice.value != key.default_value) return choice.value;
  if (key.default_value.is_null() && key.type.kind == Kind::integer) return 1;
  return key.default_value;
}

}  // namespace shardline

#include "engine/config/rules/needs.h"

#include <algorithm>

#include "engine/config/config.h"

#include "tests/catch.h"

namespace shardline::needs_test {
using nlohmann::json;

namespace {

Config with(const char* patch) {
  json file = json::parse(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 2}},
                              "data": {"train": "a.txt", "tokenizer": "bytes"}, "output_dir": "out"})");
  file.merge_patch(json::parse(patch));
  return parse_config(file.dump(), "c.json");
}

bool has_note(const Config& config, const char* beginning) {
  const auto lines = notes(config, false);
  return std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return line.starts_with(beginning); });
}

}  // namespace

TEST_CASE("Keys that have no effect in a run are listed", "[config][needs]") {
  const auto told = [](const char* patch, const char* line) {
    CAPTURE(patch);
    const Config config = with(patch);
    CHECK(has_note(config, line));
    CHECK(has_note(parse_config(resolved(config).dump(), "config.resolved.json"), line));
  };
  const auto silent = [](const char* patch, const char* key) {
    CAPTURE(patch);
    CHECK_FALSE(has_note(with(patch), key));
  };
  told(R"({"training": {"optim": "sgd", "adam_beta1": 0.8}})", "training.adam_beta1 has no effect with optim \"sgd\"");
  told(R"({"training": {"optim": "adafactor", "adam_epsilon": 1e-6}})",
       "training.adam_epsilon has no effect with optim");
  silent(R"({"training": {"optim": "adam", "adam_beta1": 0.8, "adam_beta2": 0.9}})", "training.adam");
  told(R"({"training": {"no_decay_patterns": "*wte*"}})",
       "training.no_decay_patterns has no effect with weight_decay 0");
  silent(R"({"training": {"no_decay_patterns": "*wte*", "weight_decay": 0.1}})", "training.no_decay_patterns");
  told(R"({"training": {"eval_steps": 5}})", "training.eval_steps has no effect with eval_strategy \"no\"");
  told(R"({"data": {"max_eval_samples": 5}})", "data.max_eval_samples has no effect without data to evaluate on");
  told(R"({"data": {"max_eval_samples": 5, "validation": "v.txt"}})",
       "data.max_eval_samples has no effect without eval_strategy, eval_on_start or do_eval");
  silent(R"({"data": {"max_eval_samples": 5, "validation": "v.txt"}, "training": {"do_eval": true}})", "data.");
  told(R"({"data": {"validation_split_percentage": 50}})",
       "data.validation_split_percentage 50: the run neither trains nor evaluates on that share");
  silent(R"({"data": {"validation_split_percentage": 50}, "training": {"do_eval": true}})", "data.");
  told(R"({"data": {"shuffle": false}, "training": {"data_seed": 4}})",
       "training.data_seed has no effect with train_sampling_strategy");
  told(R"({"data": {"text_column": "body"}})", "data.text_column has no effect without files that have columns");
  silent(R"({"data": {"text_column": "body", "train": ["a.txt", "b.jsonl"]}})", "data.text_column");
  silent(R"({"data": {"text_column": "body", "train": "folder"}})", "data.text_column");
  silent(R"({"task": "masked-lm", "model": {"config": {"model_type": "bert", "num_hidden_layers": 2, "n_layer": null}},
              "data": {"text_column": "body", "mlm_probability": 0.3, "sequence_length": 128}})",
         "data.");
  told(R"({"data": {"text_column": "body", "train": "a.jsonl", "completion_only_loss": true}})",
       "data.text_column has no effect with completion_only_loss");
  told(R"({"training": {"group_by_length": true}})",
       "training.train_sampling_strategy has no effect beyond that of \"random\"");
  told(R"({"data": {"packing": "wrapped_reset"}, "training": {"group_by_length": true}})",
       "training.train_sampling_strategy has no effect beyond");
  silent(R"({"data": {"packing": "none"}, "training": {"group_by_length": true}})", "training.train_sampling_strategy");
  told(R"({"smp_options": {"offload_scope": "all"}})",
       "smp_options.offload_scope has no effect without offload_activations");
  told(R"({"smp_options": {"activation_loading_horizon": 2}})", "smp_options.activation_loading_horizon has no effect");
  told(R"({"smp_options": {"offload_path": "x"}})",
       "smp_options.offload_path has no effect without offload_activations");
  told(R"({"smp_options": {"offload_activations": true}})",
       "smp_options.offload_activations has no effect without activation_checkpointing, unless offload_scope");
  told(R"({"smp_options": {"shard_optimizer_state": true}})",
       "smp_options.shard_optimizer_state has no effect with one replica (D = 1)");
  silent(R"({"smp_options": {"shard_optimizer_state": true}, "mpi_options": {"processes_per_host": 2}})",
         "smp_options.");
  told(R"({"smp_options": {"optimize": "speed"}})", "smp_options.optimize has no effect with tensor_parallel_degree 1");
  told(R"({"mpi_options": {"custom_mpi_options": "-x A=1"}})",
       "mpi_options.custom_mpi_options has no effect where no ranks are started with mpirun");
  silent(R"({"mpi_options": {"custom_mpi_options": "-x A=1", "processes_per_host": 2}})", "mpi_options");
  told(R"({"runtime": {"timeline_first_step": 20}, "training": {"max_steps": 10}})",
       "runtime.timeline_first_step has no effect with max_steps 10: no step is recorded");
  told(R"({"training": {"num_train_epochs": 2, "max_steps": 10}})",
       "training.num_train_epochs has no effect with max_steps");
  told(R"({"training": {"warmup_steps": 5, "lr_scheduler_type": "constant"}})", "training.warmup_steps has no effect");
}

}  // namespace shardline::needs_test

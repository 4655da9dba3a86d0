#include "engine/config/rules/needs.h"

#include <algorithm>

#include "core/error.h"
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
  const char* classifies = R"({"task": "sequence-classification", "model": {"config": {"model_type": "gpt2"}},
                               "data": {"train": "a.csv", "test": "b.csv", "max_predict_samples": 3},
                               "training": {"per_device_eval_batch_size": 3}})";
  const char* predicts = R"({"task": "sequence-classification", "model": {"config": {"model_type": "gpt2"}},
                             "data": {"train": "a.csv", "test": "b.csv", "max_predict_samples": 3},
                             "training": {"per_device_eval_batch_size": 3, "do_predict": true}})";
  told(classifies, "data.test has no effect in training without do_predict; `shardline predict` reads it");
  told(classifies, "data.max_predict_samples has no effect in training without do_predict");
  told(classifies, "training.per_device_eval_batch_size has no effect without data to evaluate on");
  silent(predicts, "data.");
  silent(predicts, "training.per_device_eval_batch_size");
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
  const char* program = R"({"model": {"path": "model.pt2", "config": null}, "smp_options": {"offload_activations": true,
                            "offload_scope": "all", "activation_checkpointing": "selective"}})";
  told(program, "smp_options.offload_scope has no effect beyond the hidden states between layers of a program");
  told(program, "smp_options.activation_checkpointing has no effect with \"selective\" on a program");
  silent(R"({"model": {"path": "model.pt2", "config": null}, "smp_options": {"activation_checkpointing": "each"}})",
         "smp_options.activation_checkpointing");
  silent(R"({"smp_options": {"offload_activations": true, "offload_scope": "all",
                             "activation_checkpointing": "selective"}})",
         "smp_options.");
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

TEST_CASE("Keys of the data that the task does not read are refused", "[config][needs]") {
  const auto mistake = [](const std::string& task, const std::string& key, const json& value) -> std::string {
    const json file = {{"model", {{"config", {{"model_type", "gpt2"}, {"n_layer", 2}, {"pad_token_id", 0}}}}},
                       {"task", task},
                       {"data", {{"train", "a.jsonl"}, {"tokenizer", "bytes"}, {key, value}}},
                       {"output_dir", "out"}};
    try {
      parse_config(file.dump(), "c.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  struct Used {
    const char* key;
    json value;
    std::vector<std::string> tasks;
  };
  const std::string causal = "causal-lm", sequence = "sequence-classification", tokens = "token-classification",
                    answers = "question-answering";
  const std::vector<Used> all = {{"completion_only_loss", true, {causal}},
                                 {"packing", "bfd", {causal}},
                                 {"mlm_probability", 0.3, {}},
                                 {"line_by_line", true, {}},
                                 {"whole_word_mask", true, {}},
                                 {"text_pair_column", "b", {sequence}},
                                 {"label_column", "b", {sequence, tokens}},
                                 {"tokens_column", "b", {tokens}},
                                 {"question_column", "b", {answers}},
                                 {"context_column", "b", {answers}},
                                 {"answers_column", "b", {answers}},
                                 {"doc_stride", 4, {answers}},
                                 {"n_best_size", 4, {answers}},
                                 {"max_answer_length", 4, {answers}},
                                 {"version_2_with_negative", true, {answers}},
                                 {"max_predict_samples", 4, {sequence, tokens, answers}}};
  for (const auto& [key, value, tasks] : all)
    for (const auto& task : {causal, sequence, tokens, answers}) {
      CAPTURE(key, task);
      const std::string expected = cat("c.json: /data/", key, ": has no effect with task \"", task, "\"; got ",
                                       value.dump(), "; leave it out, or set task to ");
      if (std::ranges::find(tasks, task) == tasks.end())
        CHECK_THAT(mistake(task, key, value), Catch::StartsWith(expected));
      else
        CHECK(mistake(task, key, value).empty());
    }
  CHECK_THAT(mistake(causal, "label_column", "b"),
             Catch::EndsWith("leave it out, or set task to \"sequence-classification\" or \"token-classification\""));
  CHECK_THAT(mistake(answers, "null_score_diff_threshold", 1),
             Catch::Contains("has no effect without version_2_with_negative; got 1; set version_2_with_negative to "
                             "true, or leave this key out"));
  CHECK_THAT(mistake(sequence, "null_score_diff_threshold", 1), Catch::Contains("has no effect with task"));
}

}  // namespace shardline::needs_test

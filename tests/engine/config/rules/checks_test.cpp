#include "engine/config/rules/checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/config.h"

#include "tests/catch.h"

namespace shardline::checks_test {
namespace {

std::pair<std::string, std::string> reported(const std::string& mistake) {
  std::pair<std::string, std::string> report{"not reported", "not reported"};
  report_mistakes([&] { throw ConfigError(mistake); },
                  [&](const std::string& rule, const std::string& advice) {
                    report = {rule, advice};
                  });
  return report;
}

}  // namespace

TEST_CASE("a mistake is reported as a rule and advice, or as a rule alone", "[config]") {
  CHECK(reported("must be even; use 2; or 4") == std::pair<std::string, std::string>("must be even", "use 2; or 4"));
  CHECK(reported("must be even") == std::pair<std::string, std::string>("must be even", ""));
  CHECK(reported("must be even; ") == std::pair<std::string, std::string>("must be even", ""));
  CHECK(reported("") == std::pair<std::string, std::string>());
}

TEST_CASE("errors about the data of a task state what to change", "[config]") {
  const auto [patch, expected] = GENERATE(table<std::string, std::string>({
      {R"({"data": {"task_name": "rte"}})",
       "/data/task_name: has rows of task \"sequence-classification\", but task is \"causal-lm\"; got \"rte\"; set "
       "task"},
      {R"({"data": {"task_name": "rte", "label_column": "x"}, "task": "sequence-classification"})",
       "/data/label_column: has no effect with task_name; got \"x\"; leave out either this key or task_name"},
      {R"({"data": {"validation_mismatched": "a.tsv"}})",
       "/data/validation_mismatched: is only used with task_name \"mnli\"; got \"a.tsv\"; leave it out"},
      {R"({"data": {"task_name": "cola", "validation": "a.tsv"}, "task": "sequence-classification",
         "training": {"eval_strategy": "epoch", "early_stopping_patience": 2, "metric_for_best_model": "accuracy"}})",
       "got \"accuracy\"; use one of \"loss\", \"matthews_correlation\""},
      {R"({"data": {"task_name": "mnli", "validation_split_percentage": 10}, "task": "sequence-classification",
         "training": {"eval_strategy": "epoch", "early_stopping_patience": 2,
                      "metric_for_best_model": "accuracy_mm"}})",
       "got \"accuracy_mm\"; use one of \"loss\", \"accuracy\""},
      {R"({"data": {"completion_only_loss": true}, "task": "sequence-classification"})",
       "/data/completion_only_loss: has no effect with task \"sequence-classification\"; got true; leave it out, or "
       "set "
       "task to \"causal-lm\""},
      {R"({"data": {"validation": "a.txt"}, "training": {"early_stopping_patience": 2}})",
       "/training/early_stopping_patience: has no effect with eval_strategy \"no\"; got 2; set eval_strategy"},
      {R"({"model": {"path": "m.pt2", "config": null}, "data": {"tokenizer": null}})",
       "/data/tokenizer: is required with an exported program, which has none; give a directory, a tokenizer.json or "
       "\"bytes\"; if the program takes tensors, such as images, name their columns of the data in model.inputs"},
      {R"({"model": {"path": "m.pt2", "config": null, "loss": {"function": "mse", "logits": "0"}}})",
       "/model/loss: has the function \"mse\", which compares numbers of a sample, but labels of this task are tokens"},
      {R"({"model": {"path": "m.pt2", "config": null, "loss": {"function": "focal"}, "inputs": {"x": "input_ids"}}})",
       "/model/loss: must be the name of an output, or {\"function\": "},
      {R"({"data": {"mlm_probability": 0}})", "/data/mlm_probability: must be a number >= 1e-06 and <= 1"},
  }));
  nlohmann::json file = nlohmann::json::parse(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 2}},
                                                  "data": {"train": "a.txt", "tokenizer": "bytes"},
                                                  "output_dir": "out"})");
  file.merge_patch(nlohmann::json::parse(patch));
  std::string message = "no error";
  try {
    parse_config(file.dump(), "c.json");
  } catch (const ConfigError& error) {
    message = error.what();
  }
  INFO(message);
  CHECK_THAT(message, Catch::Contains(expected));
  CHECK(std::ranges::count(message, '\n') == 0);
}

TEST_CASE("only training requires data", "[config]") {
  const std::string text = R"({"model": {"path": "m"}, "training": {"max_steps": 3}, "output_dir": "o"})";
  CHECK_THROWS_WITH(parse_config(text, "c.json"),
                    Catch::Contains("/data/train: data.train or data.validation is required"));
  const Config config = parse_config(text, "c.json", {}, Purpose::other);
  CHECK(config.data.train.empty());
  CHECK(config == parse_config(resolved(config).dump(), "c.json", {}, Purpose::other));
}

}  // namespace shardline::checks_test

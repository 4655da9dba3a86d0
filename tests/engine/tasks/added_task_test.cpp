// Tests a task and metrics that a program adds.
#include <nlohmann/json.hpp>

#include "engine/tasks/task.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::added_task_test {
namespace {

using Catch::Contains;
using nlohmann::json;

// Whether a text is long: class 1 if it has more than 8 characters.
class LongTexts final : public LabelledTask {
 public:
  LongTexts(const Config& config, TokenizerPtr tokenizer) : column_(config.data.text_column), tokenizer_(tokenizer) {}

  ExampleShape shape() const override { return {.targets = TargetKind::classes, .width = 1}; }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    const std::string text = text_of(row, column_, "data.text_column");
    Example example{.ids = tokenizer_->encode(text), .targets = {float(labelled ? text.size() > 8 : kNoLabel)}};
    return {.examples = {std::move(example)}};
  }

  std::string settings() const override { return "long texts " + column_ + tokenizer_->digest(); }

  MetricValues metrics(const Predicted& predicted) const override {
    double right = 0;
    for (int64_t i = 0; i < predicted.data.size(); ++i) right += is_long(predicted, i) == expected(predicted, i);
    return {{"right", right / predicted.data.size()}};
  }

  void predictions(const Predicted& predicted, const UsePrediction& use) const override {
    for (int64_t i = 0; i < predicted.data.size(); ++i) use({{"long", is_long(predicted, i)}});
  }

  static bool is_long(const Predicted& predicted, int64_t i) {
    return predicted.logits[i][1].item<double>() > predicted.logits[i][0].item<double>();
  }
  static bool expected(const Predicted& predicted, int64_t i) {
    return predicted.data.set->targets(predicted.data[i])[0] == 1;
  }

 private:
  std::string column_;
  TokenizerPtr tokenizer_;
};

double too_long(const Predicted& predicted) {
  double count = 0;
  for (int64_t i = 0; i < predicted.data.size(); ++i)
    count += LongTexts::is_long(predicted, i) && !LongTexts::expected(predicted, i);
  return count;
}

// Called before any config is read, because the names that configs accept are listed only once.
const bool kAdded = [] {
  add_task("long-texts", {.head = HeadChoice::Kind::sequence_classification, .metrics = {"right"}},
           [](const Config& config, const HeadChoice&, const TokenizerPtr& tokenizer) {
             return std::make_unique<LongTexts>(config, tokenizer);
           });
  add_metric("long-texts", "too_long", too_long);
  add_metric("token-classification", "tags", [](const Predicted& predicted) { return predicted.logits.size(0); });
  return true;
}();

json run_of_task(const RunFolder& folder, const json& changes) {
  std::string rows;
  for (int i = 0; i < 64; ++i) rows += json{{"text", std::string(1 + (i * 7) % 16, 'a' + i % 3)}}.dump() + '\n';
  const std::string file = folder.write("rows.jsonl", rows);
  json run = tiny_run(folder, {{"task", "long-texts"},
                               {"model", {{"config", {{"num_labels", 2}, {"pad_token_id", 0}}}}},
                               {"data", {{"train", file}, {"validation", file}, {"test", file}}},
                               {"training",
                                {{"max_steps", 60},
                                 {"per_device_train_batch_size", 16},
                                 {"learning_rate", 0.01},
                                 {"eval_strategy", "steps"},
                                 {"eval_steps", 30},
                                 {"save_steps", 30},
                                 {"load_best_model_at_end", true},
                                 {"metric_for_best_model", "too_long"},
                                 {"greater_is_better", false},
                                 {"do_predict", true}}}});
  run.merge_patch(changes);
  return run;
}

std::vector<json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("a program's own task trains, evaluates and predicts with its own metrics, on every layout") {
  REQUIRE(kAdded);
  const RunFolder folder("added-task");
  json last;
  for (const int ranks : {1, 2}) {
    const json layout = {{"output_dir", folder / cat("out-", ranks)},
                         {"smp_options", {{"pipeline_parallel_degree", ranks}, {"microbatches", ranks}}},
                         {"runtime", {{"dtype", "float64"}}}};
    const Config config = parse_config(run_of_task(folder, layout).dump(), "run.json");
    CHECK_THAT(train_in_process(config), Contains("the best model is that of") && Contains("wrote 64 predictions"));
    const auto metrics = lines_of(config.output_dir + "/metrics.jsonl");
    const json evaluation = metrics.back();
    CHECK(evaluation.at("eval_right") > 0.9);
    CHECK(evaluation.contains("eval_too_long"));
    if (ranks == 1) last = evaluation;
    CHECK(evaluation["eval_right"] == last["eval_right"]);
    CHECK(evaluation["eval_loss"].get<double>() == Approx(last["eval_loss"].get<double>()).epsilon(1e-9));

    const auto predictions = lines_of(config.output_dir + "/predictions.jsonl");
    REQUIRE(predictions.size() == 64);
    int right = 0;
    for (int i = 0; i < 64; ++i) right += predictions[i].at("long") == (1 + (i * 7) % 16 > 8);
    CHECK(right > 0.9 * 64);
  }
}

TEST_CASE("names of tasks and metrics must exist, and each is listed once") {
  const RunFolder folder("added-names");
  const auto mistake = [&](const json& changes) {
    try {
      parse_config(run_of_task(folder, changes).dump(), "run.json");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(mistake(json::object()) == "");
  CHECK_THAT(mistake({{"task", "long-text"}}), Contains("\"long-texts\"") && Contains("\"masked-lm\""));
  CHECK_THAT(mistake({{"training", {{"metric_for_best_model", "f1"}}}}),
             Contains("too_long") && Contains("right") && Contains("/training/metric_for_best_model"));
  const TaskTraits traits{.head = HeadChoice::Kind::masked_lm};
  CHECK_THROWS_WITH(add_task("masked-lm", traits, nullptr), Contains("already a task \"masked-lm\""));
  CHECK_THROWS_WITH(add_metric("no-task", "m", nullptr), Contains("\"no-task\""));
  CHECK_THROWS_WITH(add_metric("long-texts", "right", nullptr), Contains("already has a metric \"right\""));
  CHECK_THROWS_WITH(add_metric("long-texts", "too_long", nullptr), Contains("already has"));
  CHECK_THROWS_WITH(add_metric("masked-lm", "loss", nullptr), Contains("already has"));
}

}  // namespace shardline::added_task_test

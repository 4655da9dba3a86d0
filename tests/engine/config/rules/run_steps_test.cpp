#include "engine/config/rules/run_steps.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/config/config.h"

#include "tests/catch.h"

namespace shardline::run_steps_test {
namespace {

using nlohmann::json;
using Steps = std::vector<int64_t>;

constexpr RunSteps kRun = {.total = 10, .per_epoch = 4};

TrainingOptions options(const json& training) {
  const json file = {{"model", {{"config", {{"model_type", "gpt2"}}}}},
                     {"data", {{"train", "text.txt"}, {"validation", "text.txt"}, {"tokenizer", "bytes"}}},
                     {"training", training},
                     {"output_dir", "out"}};
  return parse_config(file.dump(), "run.json").training;
}

template <class Due>
Steps due_steps(const json& training, const Due& due) {
  Steps steps;
  for (int64_t step = 1; step <= kRun.total; ++step)
    if (due(options(training), step, kRun)) steps.push_back(step);
  return steps;
}

}  // namespace

TEST_CASE("lines are logged every few steps, at a share of all, after epochs, or never") {
  const auto logged = [](const json& training) { return due_steps(training, logs_after); };
  CHECK(logged(json::object()).empty());  // every 500
  CHECK(logged({{"logging_steps", 3}}) == Steps{3, 6, 9});
  CHECK(logged({{"logging_steps", 0.25}}) == Steps{3, 6, 9});  // rounded up
  CHECK(logged({{"logging_steps", 1e-6}}).size() == 10);
  CHECK(logged({{"logging_strategy", "epoch"}}) == Steps{4, 8, 10});
  CHECK(logged({{"logging_strategy", "no"}}).empty());
}

TEST_CASE("numbers of steps do not depend on the strategies") {
  const auto t = options({{"logging_strategy", "no"}, {"logging_steps", 0.25}, {"save_strategy", "no"}});
  CHECK(logging_steps(t, kRun) == 3);
  CHECK(eval_steps(t, kRun) == 3);
  CHECK(save_steps(t, kRun) == 500);
}

TEST_CASE("evaluations follow eval_strategy, with one after the last step") {
  const auto evaluated = [](const json& training) { return due_steps(training, evaluates_after); };
  CHECK(evaluated({{"eval_strategy", "no"}}).empty());
  CHECK(evaluated({{"eval_strategy", "no"}, {"do_eval", true}}) == Steps{10});
  CHECK(evaluated({{"eval_strategy", "steps"}, {"eval_steps", 4}}) == Steps{4, 8, 10});
  CHECK(evaluated({{"eval_strategy", "steps"}, {"eval_steps", 0.5}}) == Steps{5, 10});
  CHECK(evaluated({{"eval_strategy", "steps"}, {"logging_steps", 0.3}}) == Steps{3, 6, 9, 10});
  CHECK(evaluated({{"eval_strategy", "epoch"}}) == Steps{4, 8, 10});
}

TEST_CASE("eval_delay counts steps, or epochs of eval_strategy epoch") {
  const auto evaluated = [](const json& training) { return due_steps(training, evaluates_after); };
  CHECK(evaluated({{"eval_strategy", "steps"}, {"eval_steps", 4}, {"eval_delay", 4}}) == Steps{4, 8, 10});
  CHECK(evaluated({{"eval_strategy", "steps"}, {"eval_steps", 4}, {"eval_delay", 5}}) == Steps{8, 10});
  CHECK(evaluated({{"eval_strategy", "steps"}, {"eval_steps", 4}, {"eval_delay", 11}}).empty());
  CHECK(evaluated({{"eval_strategy", "epoch"}, {"eval_delay", 2}}) == Steps{8, 10});
  CHECK(evaluated({{"eval_strategy", "epoch"}, {"eval_delay", 2.5}}) == Steps{10});
  CHECK(evaluated({{"eval_strategy", "steps"}, {"eval_delay", 11}, {"do_eval", true}}) == Steps{10});
}

TEST_CASE("an evaluation is regular if a longer run has it, too") {
  const auto regular = [](const json& training) { return due_steps(training, evaluates_regularly); };
  CHECK(regular({{"eval_strategy", "no"}, {"do_eval", true}}).empty());
  CHECK(regular({{"eval_strategy", "steps"}, {"eval_steps", 4}}) == Steps{4, 8});
  CHECK(regular({{"eval_strategy", "steps"}, {"eval_steps", 5}, {"eval_delay", 6}}) == Steps{10});
  CHECK(regular({{"eval_strategy", "steps"}, {"eval_steps", 5}, {"eval_delay", 11}, {"do_eval", true}}).empty());
  CHECK(regular({{"eval_strategy", "epoch"}}) == Steps{4, 8});
  CHECK(regular({{"eval_strategy", "epoch"}, {"eval_delay", 2}}) == Steps{8});
  const auto ever = [](int64_t delay) {
    return ever_evaluates_regularly(options({{"eval_strategy", "steps"}, {"eval_steps", 4}, {"eval_delay", delay}}),
                                    kRun);
  };
  CHECK(ever(8));
  CHECK_FALSE(ever(9));
}

TEST_CASE("checkpoints follow save_strategy, with one after the last step") {
  const auto saved = [](const json& training) { return due_steps(training, saves_after); };
  CHECK(saved({{"save_steps", 4}}) == Steps{4, 8, 10});
  CHECK(saved({{"save_steps", 0.15}}) == Steps{2, 4, 6, 8, 10});
  CHECK(saved({{"save_strategy", "epoch"}}) == Steps{4, 8, 10});
  CHECK(saved({{"save_strategy", "no"}}).empty());
}

}  // namespace shardline::run_steps_test

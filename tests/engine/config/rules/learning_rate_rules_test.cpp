#include "engine/config/rules/learning_rate_rules.h"

#include <cmath>
#include <fstream>

#include "tests/engine/config/training_config.h"

#include "tests/catch.h"

namespace shardline::learning_rate_rules_test {
namespace {

using nlohmann::json;

std::string kwargs_mistake(const std::string& type, const json& kwargs, const json& more = json::object(),
                           const json& data = json::object()) {
  json training = {{"lr_scheduler_type", type}, {"lr_scheduler_kwargs", kwargs}, {"max_steps", 100}};
  training.update(more);
  return mistake_in(training, data);
}

const json kEvaluated = {{"validation", "text.txt"}};

}  // namespace

TEST_CASE("every schedule has the learning rates of transformers, step by step") {
  std::ifstream file(SHARDLINE_SOURCE_DIR "/tests/engine/config/golden/schedules.json");
  const json entries = json::parse(file);
  REQUIRE(entries.size() >= 60);
  for (const auto& entry : entries) {
    const TrainingOptions training = config_with(entry["training"]).training;
    const int64_t steps = entry["steps"];
    const auto options = learning_rate_options(training, steps);
    for (size_t i = 0; i < entry["rates"].size(); ++i) {
      CAPTURE(entry["training"].dump(), steps, i + 1);
      const double rate = learning_rate(options, static_cast<int64_t>(i) + 1);
      CHECK(rate == Approx(entry["rates"][i].get<double>()).epsilon(1e-12).margin(1e-18));
    }
  }
}

TEST_CASE("a schedule accepts only its own arguments") {
  using Catch::Contains;
  CHECK(kwargs_mistake("cosine", {{"num_cycles", 2}}) == "");
  CHECK(kwargs_mistake("cosine", R"({"num_cycles": 2})") == "");  // as text, as on a command line
  CHECK(kwargs_mistake("linear", nullptr) == "");
  CHECK_THAT(kwargs_mistake("linear", {{"num_cycles", 2}}), Contains("takes none"));
  CHECK_THAT(kwargs_mistake("cosine", {{"lr_end", 0}}), Contains("the schedule takes [\"num_cycles\"]"));
  CHECK_THAT(kwargs_mistake("cosine", {{"cycles", 2}}),
             Contains("/training/lr_scheduler_kwargs: no schedule has an argument \"cycles\"; got {\"cycles\":2}"));
  CHECK_THAT(kwargs_mistake("cosine", {{"num_cycle", 2}}), Contains("did you mean \"num_cycles\"?"));
  CHECK_THAT(kwargs_mistake("cosine", "num_cycles=2"), Contains("must be an object"));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  CHECK_THAT(kwargs_mistake("cosine", R"({"num_cycles": )" + deep + "}"), Contains("must be an object"));
  CHECK_THAT(kwargs_mistake("cosine", {{"num_cycles", "two"}}), Contains("must be a number"));
  CHECK_THAT(kwargs_mistake("cosine", {{"num_cycles", -1}}), Contains("must be a number from 0"));
  CHECK_THAT(kwargs_mistake("cosine_with_min_lr", json::object()), Contains("needs either min_lr or min_lr_rate"));
  CHECK_THAT(kwargs_mistake("cosine_with_min_lr", {{"min_lr", 0}, {"min_lr_rate", 0}}), Contains("needs either"));
  CHECK_THAT(kwargs_mistake("cosine_with_min_lr", {{"min_lr", 1}}), Contains("\"min_lr\" must be a number from 0"));
  CHECK_THAT(kwargs_mistake("polynomial", {{"lr_end", 1e-3}}), Contains("must be below learning_rate"));
  CHECK_THAT(kwargs_mistake("warmup_stable_decay", nullptr), Contains("needs num_decay_steps"));
  CHECK_THAT(kwargs_mistake("warmup_stable_decay", {{"num_decay_steps", 1.5}}), Contains("must be a whole number"));
  CHECK_THAT(kwargs_mistake("warmup_stable_decay", {{"num_decay_steps", 60}, {"num_stable_steps", 41}}),
             Contains("are 101 steps, but the run has 100"));
  CHECK_THAT(kwargs_mistake("warmup_stable_decay", {{"num_decay_steps", 60}}, {{"warmup_steps", 41}}),
             Contains("are 101 steps"));
  CHECK_THAT(kwargs_mistake("warmup_stable_decay", {{"num_decay_steps", 60}, {"decay_type", "sqrt"}}),
             Contains("use one of [\"linear\",\"cosine\",\"1-sqrt\"]"));
  CHECK_THAT(kwargs_mistake("annealing", {{"plateau", 0.1}}), Contains("only used with lr_decay_style \"plateau\""));
  CHECK_THAT(kwargs_mistake("annealing", {{"lr_decay_style", "plateau"}}, {{"warmup_steps", 0.6}}),
             Contains("make them shorter"));
  CHECK_THAT(kwargs_mistake("annealing", {{"lr_decay_style", "1-sqrt"}}),
             Contains("use one of [\"linear\",\"cosine\""));
  CHECK_THAT(mistake_in({{"lr_scheduler_type", "greedy"}}), Contains("got \"greedy\"; use \"reduce_lr_on_plateau\""));
}

TEST_CASE("reduce_lr_on_plateau has the learning rates of torch after each evaluation") {
  std::ifstream file(SHARDLINE_SOURCE_DIR "/tests/engine/config/golden/plateau.json");
  const json entries = json::parse(file);
  REQUIRE(entries.size() >= 10);
  for (const auto& entry : entries) {
    const TrainingOptions training = config_with(entry["training"], kEvaluated).training;
    PlateauRate rate(plateau_options(training));
    double last = training.learning_rate;
    for (size_t i = 0; i < entry["metrics"].size(); ++i) {
      CAPTURE(entry["training"].dump(), i);
      const json& metric = entry["metrics"][i];
      const bool falls = rate.observe(metric.is_null() ? NAN : metric.get<double>());
      const double now = training.learning_rate * rate.share();
      CHECK(now == Approx(entry["rates"][i].get<double>()).epsilon(1e-14));
      CHECK(falls == (now < last));
      last = now;
    }
  }
}

TEST_CASE("a learning rate can follow evaluations only if there are any, and only in the right direction") {
  using Catch::Contains;
  const auto mistake = [](const json& kwargs, const json& more = json::object()) {
    json given = {{"eval_strategy", "steps"}};
    given.update(more);
    return kwargs_mistake("reduce_lr_on_plateau", kwargs, given, kEvaluated);
  };
  CHECK(mistake(nullptr) == "");
  CHECK_THAT(
      mistake(nullptr, {{"eval_strategy", "no"}}),
      Contains("follows evaluations, but eval_strategy is \"no\"; got \"reduce_lr_on_plateau\"; set eval_strategy"));
  CHECK_THAT(mistake({{"mode", "max"}}), Contains("mode is \"max\", but smaller values of eval_loss are better"));
  CHECK_THAT(mistake(nullptr, {{"greater_is_better", true}}), Contains("set mode to \"max\""));
  CHECK(mistake({{"mode", "max"}}, {{"greater_is_better", true}}) == "");
  CHECK_THAT(mistake({{"factor", 1}}), Contains("\"factor\" must be below 1"));
  CHECK_THAT(mistake({{"factor", -1}}), Contains("\"factor\" must be a number from 0 to 1"));
  CHECK_THAT(mistake({{"patience", 1.5}}), Contains("must be a whole number"));
  CHECK_THAT(mistake({{"mode", "best"}}), Contains("use one of [\"min\",\"max\"]"));
  CHECK_THAT(mistake({{"threshold_mode", "share"}}), Contains("use one of [\"rel\",\"abs\"]"));
  CHECK_THAT(mistake({{"min_lr", 1}}), Contains("\"min_lr\" must be a number from 0 to learning_rate"));
  CHECK_THAT(mistake({{"num_cycles", 1}}), Contains("has no argument \"num_cycles\""));
}

TEST_CASE("arguments that are text get the types of their values") {
  const auto read = [](const json& kwargs) {
    return config_with({{"lr_scheduler_type", "cosine"}, {"lr_scheduler_kwargs", kwargs}}).training.lr_scheduler_kwargs;
  };
  CHECK(read({{"num_cycles", 2}}) == SchedulerArguments{.num_cycles = 2});
  CHECK(read(R"({"num_cycles": 2})") == SchedulerArguments{.num_cycles = 2});
  CHECK(read({{"num_cycles", nullptr}}) == SchedulerArguments());
  CHECK(json(SchedulerArguments()) == nullptr);
  const SchedulerArguments all = {1,
                                  2,
                                  3,
                                  4,
                                  5,
                                  0.6,
                                  0.7,
                                  0.8,
                                  0.9,
                                  10,
                                  11,
                                  12,
                                  RateShape::linear,
                                  RateShape::cosine,
                                  RateShape::plateau,
                                  0.13,
                                  14,
                                  15,
                                  16,
                                  17,
                                  PlateauMode::max,
                                  ThresholdMode::abs};
  const json written = all;
  CHECK(written.size() == 22);
  CHECK(written.get<SchedulerArguments>() == all);
  const LossScaleArguments scale = {1, 2, 3, 4, 5, true};
  CHECK(json(scale).size() == 6);
  CHECK(json(scale).get<LossScaleArguments>() == scale);
}

TEST_CASE("warm-up is a number of steps or a share of all steps, with the keys of both versions") {
  const auto warmup = [](const json& training, int64_t steps) {
    return learning_rate_options(config_with(training).training, steps).warmup_steps;
  };
  CHECK(warmup({{"warmup_steps", 7}}, 100) == 7);
  CHECK(warmup({{"warmup_steps", 0.051}}, 100) == 6);  // rounded up
  CHECK(warmup({{"warmup_ratio", 0.1}}, 100) == 10);
  CHECK(warmup({{"warmup_ratio", 0.01},
                {"lr_scheduler_type", "annealing"},
                {"lr_scheduler_kwargs", {{"lr_decay_iters", 125000}}}},
               100) == 1250);  // a share of the decay
}

}  // namespace shardline::learning_rate_rules_test

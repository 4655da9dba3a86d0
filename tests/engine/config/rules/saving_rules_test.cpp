#include "engine/config/rules/saving_rules.h"

#include "tests/engine/config/training_config.h"

#include "tests/catch.h"

namespace shardline::saving_rules_test {

using Catch::Contains;
using nlohmann::json;

TEST_CASE("each checkpoint has an evaluation if the best one is to be found") {
  const auto mistake = [](const json& save_steps, const json& max_steps) {
    return mistake_in({{"load_best_model_at_end", true},
                       {"eval_strategy", "steps"},
                       {"eval_steps", 4},
                       {"save_steps", save_steps},
                       {"max_steps", max_steps}});
  };
  CHECK_THAT(mistake(8, 20), !Contains("load_best_model_at_end"));
  CHECK_THAT(mistake(10, 20), Contains("save_steps 10 is not a multiple of eval_steps 4") && Contains("use 12"));
  // A share is checked as soon as the number of all steps is known.
  CHECK_THAT(mistake(0.2, 20), !Contains("load_best_model_at_end"));
  CHECK_THAT(mistake(0.25, 20),
             Contains("save_steps 5 (0.25 of 20) is not a multiple of eval_steps 4; got true; use 4"));
  CHECK_THAT(mistake(0.25, -1), !Contains("load_best_model_at_end"));
  TrainingOptions training;
  training.load_best_model_at_end = true;
  training.eval_strategy = EvalStrategy::steps;
  training.save_steps = 0.25;
  training.eval_steps = 4;
  CHECK_NOTHROW(check_evaluated_saves(training, 32));
  CHECK_THROWS_AS(check_evaluated_saves(training, 20), ConfigError);
}

TEST_CASE("a best model needs an evaluation before the end") {
  const auto mistake = [](int delay, bool at_end = false) {
    return mistake_in({{"load_best_model_at_end", true},
                       {"do_eval", at_end},
                       {"eval_strategy", "steps"},
                       {"eval_steps", 4},
                       {"save_steps", 4},
                       {"eval_delay", delay},
                       {"max_steps", 8}});
  };
  CHECK_THAT(mistake(9), Contains("eval_delay 9 is more than max_steps 8"));
  CHECK_THAT(mistake(8), !Contains("eval_delay 8"));
  CHECK_THAT(mistake(9, true), !Contains("eval_delay 9"));
}

TEST_CASE("evaluations are comparable if nothing has changed that their metrics depend on") {
  Config config;
  config.task = kQuestionAnswering;
  const json usual = comparison_settings(config, "digest");
  CHECK(usual == json{{"metric", "eval_loss"}, {"greater_is_better", false}, {"data", "digest"}});
  const auto with = [&](const std::string& task, const auto& change) {
    Config changed = config;
    changed.task = task;
    change(changed);
    return comparison_settings(changed, "digest");
  };
  CHECK(with(kQuestionAnswering, [](Config& c) { c.training.label_smoothing_factor = 0.1; }) != usual);
  CHECK(with(kQuestionAnswering, [](Config& c) { c.data.null_score_diff_threshold = -1; }) != usual);
  CHECK(with(kQuestionAnswering, [](Config& c) { c.data.n_best_size = 3; }) != usual);
  CHECK(with(kQuestionAnswering, [](Config& c) { c.data.max_answer_length = 5; }) != usual);
  CHECK(with(kQuestionAnswering, [](Config& c) { c.data.version_2_with_negative = true; }) != usual);
  CHECK(with(kQuestionAnswering, [](Config& c) { c.data.mlm_probability = 0.3; }) == usual);
  CHECK(with(kMaskedLm, [](Config& c) { c.data.mlm_probability = 0.3; }) != usual);
  CHECK(with(kMaskedLm, [](Config& c) { c.data.whole_word_mask = true; }) != usual);
}

TEST_CASE("numbers of steps are whole, or shares below 1") {
  for (const char* key : {"save_steps", "logging_steps", "eval_steps"}) {
    const json strategy = {{"eval_strategy", "steps"}, {key, 2.5}};
    CHECK_THAT(mistake_in(strategy), Contains(key) && Contains("must be a whole number of steps") && Contains("use 2"));
    for (const double value : {3.0, 0.25})
      CHECK_THAT(mistake_in({{"eval_strategy", "steps"}, {key, value}}), !Contains("whole number"));
  }
}

TEST_CASE("a list stands for the newest checkpoint, or for where to start if there is none") {
  Config config;
  config.training.resume_from_checkpoint = {"auto", "other/checkpoint-5"};
  CHECK(resume_source(config).kind == ResumeSource::Kind::newest_or_fresh);
  CHECK(resume_source(config).path == "other/checkpoint-5");
  for (const json& value : {json{"auto"}, json{"auto", ""}, json{true, "a"}, json{"a", "b"}, json{"auto", "a", "b"}})
    CHECK_THAT(mistake_in({{"resume_from_checkpoint", value}}), Contains("or [\"auto\", DIRECTORY]"));
}

TEST_CASE("\"true\" in quotes is not the name of a checkpoint") {
  for (const char* text : {"true", "True"})
    CHECK_THAT(mistake_in({{"resume_from_checkpoint", text}}), Contains("use true without quotes"));
  for (const json& value : {json(true), json("auto"), json("out/checkpoint-5"), json{"auto", "out/checkpoint-5"}})
    CHECK_THAT(mistake_in({{"resume_from_checkpoint", value}}), !Contains("resume_from_checkpoint"));
}

}  // namespace shardline::saving_rules_test

#include "engine/checkpoint/curve_settings.h"

#include <ATen/TensorOperators.h>

#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::curve_settings_test {

using Catch::Contains;
using nlohmann::json;
using namespace words_program;

TEST_CASE("a smaller batch is distinguished from every other difference") {
  Config config;
  const auto settings = [&](int64_t batch, int64_t steps) {
    return curve_settings(config, {.global_batch = batch, .total_steps = steps, .data = "digest"});
  };
  const json before = settings(16, 100);
  CHECK(has_only_smaller_batch(before, settings(8, 200), /*steps_follow=*/true));
  CHECK(has_only_smaller_batch(before, settings(8, 100), /*steps_follow=*/false));
  CHECK_FALSE(has_only_smaller_batch(before, settings(8, 200), /*steps_follow=*/false));
  CHECK_FALSE(has_only_smaller_batch(before, settings(16, 100), true));
  CHECK_FALSE(has_only_smaller_batch(before, settings(32, 100), true));
  config.training.learning_rate *= 2;
  CHECK_FALSE(has_only_smaller_batch(before, settings(8, 200), true));
  CHECK_FALSE(has_only_smaller_batch(json::object(), settings(8, 200), true));
  CHECK_FALSE(has_only_smaller_batch({{kGlobalBatchSetting, "many"}}, settings(8, 200), true));
}

TEST_CASE("the loss curve of a program depends on what it computes, not on the name of its file") {
  Config config;
  const auto settings = [&](const char* file, const char* program) {
    return curve_settings(config, {.data = "digest", .model_config = {{"exported_program", file}}, .program = program});
  };
  const json before = settings("a.pt2", "1");
  CHECK(curve_differences(before, settings("b.pt2", "1")).empty());
  CHECK_THAT(curve_differences(before, settings("a.pt2", "2")), Contains("/model (program)"));
  config.model.loss = "other";
  CHECK_THAT(curve_differences(before, settings("a.pt2", "1")), Contains("/model/loss"));
  config.model.loss = nullptr;
  config.model.inputs = {{"tokens", "input_ids"}};
  CHECK_THAT(curve_differences(before, settings("a.pt2", "1")), Contains("/model/inputs"));
  config.model.inputs = json::object();
  config.model.config = {{"decoder_start_token_id", 3}};
  CHECK_THAT(curve_differences(before, settings("a.pt2", "1")), Contains("decoder_start_token_id"));
}

TEST_CASE("the digest of a program depends on its calls, not on its path or weights", "[pt2]") {
  const ScratchDirectory scratch;
  const std::string before = graph_digest(read_pt2(path()));
  std::filesystem::copy_file(path(), scratch / "copy.pt2");
  CHECK(graph_digest(read_pt2(scratch / "copy.pt2")) == before);

  Pt2Archive archive = read_pt2(path());
  const auto change = [&](const auto& changed) {
    Pt2Archive other = archive;
    changed(other);
    return graph_digest(other);
  };
  CHECK(change([](Pt2Archive&) {}) == before);
  CHECK(change([](Pt2Archive& other) { other.graph.nodes.pop_back(); }) != before);
  CHECK(change([](Pt2Archive& other) { other.graph.outputs.front().value -= 1; }) != before);
  CHECK(change([](Pt2Archive& other) { other.constants.at("scale") = other.constants.at("scale") + 1; }) != before);
}

TEST_CASE("a program with another probability of dropout has another digest", "[pt2]") {
  const Pt2Archive before = read_pt2(path());
  Pt2Archive after = before;
  int changed = 0;
  for (auto& node : after.graph.nodes)
    for (auto& argument : node.arguments)
      if (argument.constant.isDouble() && changed++ == 0) argument.constant = argument.constant.toDouble() + 1e-15;
  REQUIRE(changed > 0);
  CHECK(graph_digest(after) != graph_digest(before));
}

TEST_CASE("a different number of steps is reported with the keys that determine it") {
  const auto settings = [&](int64_t steps) { return curve_settings(Config(), {.total_steps = steps}); };
  CHECK(curve_differences(settings(2000), settings(40)) ==
        "/training/max_steps or num_train_epochs (total steps): 2000 in the checkpoint, 40 now");
}

TEST_CASE("with reduce_lr_on_plateau, the loss curve depends on the steps of evaluations") {
  const auto settings = [](RateSchedule schedule, double eval_steps, int64_t steps) {
    Config config;
    config.training.lr_scheduler_type = schedule;
    config.training.eval_strategy = EvalStrategy::steps;
    config.training.eval_steps = eval_steps;
    return curve_settings(config, {.total_steps = steps});
  };
  const auto plateau = RateSchedule::reduce_lr_on_plateau;
  CHECK(curve_differences(settings(plateau, 10, 40), settings(plateau, 10, 50)).empty());
  CHECK(curve_differences(settings(plateau, 10, 40), settings(plateau, 20, 40)) ==
        "/training/eval_steps: 10.0 in the checkpoint, 20.0 now");
  CHECK_THAT(curve_differences(settings(plateau, 0.5, 40), settings(plateau, 0.5, 50)), Contains("total steps"));
  CHECK(curve_differences(settings(RateSchedule::linear, 10, 40), settings(RateSchedule::linear, 20, 40)).empty());
}

TEST_CASE("with reduce_lr_on_plateau, the loss curve depends on the data of evaluations") {
  const auto settings = [](RateSchedule schedule, const char* digest) {
    Config config;
    config.training.lr_scheduler_type = schedule;
    return curve_settings(config, {.comparison = {{"metric", "eval_loss"}, {"data", digest}}});
  };
  CHECK(curve_differences(settings(RateSchedule::reduce_lr_on_plateau, "a"),
                          settings(RateSchedule::reduce_lr_on_plateau, "b")) ==
        "/training/metric_for_best_model/data: \"a\" in the checkpoint, \"b\" now");
  CHECK(curve_differences(settings(RateSchedule::constant, "a"), settings(RateSchedule::constant, "b")).empty());
}

}  // namespace shardline::curve_settings_test

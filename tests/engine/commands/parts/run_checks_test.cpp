// What is refused before the ranks of a run start.
#include "engine/commands/parts/run_checks.h"

#include <functional>
#include <string>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/config/config.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::run_checks_test {

namespace {

using Catch::Contains;

// The program takes 4 samples of 5 tokens.
Config config_of_fixed_program() {
  return parse_config(R"({"model": {"path": ")" + golden("program/fixed_heads.pt2") + R"("},
          "data": {"train": "missing.bin", "format": "tokens", "sequence_length": 5}, "output_dir": "unused",
          "training": {"global_batch_size": 4, "max_steps": 1},
          "runtime": {"device": "cpu", "communicator": "local"}})",
                      "run checks");
}

std::string mistakes_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string mistakes_of_plan(const Config& config) {
  return mistakes_of([&] { check_run(config, plan_model(config, 1), RunMoment::planned); });
}

}  // namespace

TEST_CASE("predictions after training need batches that fit a program of fixed sizes") {
  Config config = config_of_fixed_program();
  config.training.per_device_eval_batch_size = 6;
  const std::string wanted = "/training/per_device_eval_batch_size: makes microbatches of 6 samples";
  CHECK_THAT(mistakes_of_plan(config), !Contains(wanted));
  config.training.do_predict = true;
  CHECK_THAT(mistakes_of_plan(config), Contains(wanted) && Contains("takes at most 4; set it to 4"));
}

TEST_CASE("by default, evaluations fill the microbatches of a program of fixed sizes") {
  Config config = config_of_fixed_program();
  config.training.do_predict = true;
  CHECK(plan_model(config, 1).plan.layout.eval_batch == 4);
  CHECK_THAT(mistakes_of_plan(config), !Contains("per_device_eval_batch_size"));
  config.training.global_batch_size = 12;
  config.smp.microbatches = 3;
  CHECK(plan_model(config, 1).plan.layout.eval_batch == 12);
  config.training.per_device_eval_batch_size = 6;
  CHECK(plan_model(config, 1).plan.layout.eval_batch == 6);
}

TEST_CASE("before reading data, eval and predict refuse sizes that do not fit a program of fixed sizes") {
  Config config = config_of_fixed_program();
  config.data.validation = config.data.train;
  config.training.global_batch_size.reset();  // the microbatches of training do not matter
  const auto evaluation = [](const Config& used) { return mistakes_of([&] { check_evaluate(used); }); };
  CHECK_THAT(evaluation(config), Contains("missing.bin") && !Contains("/training"));
  config.training.per_device_eval_batch_size = 6;
  CHECK_THAT(evaluation(config), Contains("/training/per_device_eval_batch_size: makes microbatches of 6 samples"));
  config.training.per_device_eval_batch_size = 3;
  config.data.sequence_length = 4;
  CHECK_THAT(evaluation(config), Contains("/data/sequence_length: is 4") && Contains("samples of exactly 5 tokens"));

  Config pictures =
      parse_config(R"({"task": "sequence-classification", "model": {"path": ")" + golden("program/fixed_pictures.pt2") +
                       R"(", "inputs": {"pixel_values": "image", "labels": "labels"}, "config": {"num_labels": 3}},
          "data": {"train": "missing.safetensors", "test": "missing.safetensors", "sequence_length": 5},
          "output_dir": ".", "runtime": {"device": "cpu", "communicator": "local"}})",
                   "run checks");
  const auto prediction = [&] { return mistakes_of([&] { check_predict(pictures, "predictions.jsonl"); }); };
  CHECK_THAT(prediction(), Contains("missing.safetensors") && !Contains("/training"));
  pictures.training.per_device_eval_batch_size = 4;
  CHECK_THAT(prediction(), Contains("/training/per_device_eval_batch_size: makes microbatches of 4 samples"));
}

TEST_CASE("samples of several documents are refused for a program of a fixed number of samples") {
  Config config = config_of_fixed_program();
  for (const auto& [packing, is_refused] : {std::pair(Packing::bfd, true), std::pair(Packing::wrapped_reset, true),
                                            std::pair(Packing::wrapped, false), std::pair(Packing::none, false)}) {
    config.data.packing = packing;
    const std::string mistakes = mistakes_of_plan(config);
    CHECK(Contains("/data/packing: ").match(mistakes) == is_refused);
    if (is_refused) CHECK_THAT(mistakes, Contains("takes exactly 4; use \"wrapped\" or \"none\"") && Contains("{0: "));
  }
}

TEST_CASE("a loss of whole microbatches of a fixed size needs batches that fill them") {
  ModelSpec spec;
  spec.most_samples = 4;
  spec.loss_of_samples = true;
  const auto check = [&](int64_t samples, int64_t steps = 2) {
    check_filled({"/data/train", steps, [&](int64_t step) { return step == 0 ? 16 : samples; }, 2}, spec, 2);
  };
  check(16);
  CHECK_THROWS_WITH(check(15), Contains("/data/train: batch 2 has 15 samples, of which a microbatch has 3"));
  CHECK_THROWS_WITH(check(8), Contains("of which a microbatch has 2") && Contains("a multiple of 16"));
  check(8, 1);
  spec.loss_of_samples = false;
  check(15);
}

}  // namespace shardline::run_checks_test

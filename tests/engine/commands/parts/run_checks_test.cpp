// What is refused before the ranks of a run start.
#include "engine/commands/parts/run_checks.h"

#include "core/error.h"
#include "engine/config/config.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::run_checks_test {

TEST_CASE("predictions after training need batches that a program of fixed sizes takes") {
  Config config = parse_config(R"({"model": {"path": ")" + golden("program/fixed_heads.pt2") + R"("},
          "data": {"train": "missing.bin", "format": "tokens", "sequence_length": 5}, "output_dir": "unused",
          "training": {"global_batch_size": 4, "max_steps": 1},
          "runtime": {"device": "cpu", "communicator": "local"}})",
                               "run checks");
  const PlannedModel planned = plan_model(config, 1);
  const auto mistakes = [&] {
    try {
      check_run(config, planned, RunMoment::planned);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(mistakes(), !Catch::Contains("/training/per_device_eval_batch_size"));
  config.training.do_predict = true;
  CHECK_THAT(mistakes(), Catch::Contains("/training/per_device_eval_batch_size: makes microbatches of 8 samples"));
}

TEST_CASE("a loss of whole microbatches of a fixed size needs batches that fill them") {
  ModelSpec spec;
  spec.most_samples = 4;
  spec.loss_of_samples = true;
  const auto check = [&](int64_t samples, int64_t steps = 2) {
    check_filled({"/data/train", steps, [&](int64_t step) { return step == 0 ? 16 : samples; }, 2}, spec, 2);
  };
  check(16);
  CHECK_THROWS_WITH(check(15), Catch::Contains("/data/train: batch 2 has 15 samples, of which a microbatch has 3"));
  CHECK_THROWS_WITH(check(8), Catch::Contains("of which a microbatch has 2") && Catch::Contains("a multiple of 16"));
  check(8, 1);
  spec.loss_of_samples = false;
  check(15);
}

}  // namespace shardline::run_checks_test

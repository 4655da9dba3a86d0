// What is refused before the ranks of a run start.
#include "engine/commands/parts/run_checks.h"

#include "core/error.h"
#include "engine/config/config.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::run_checks_test {

TEST_CASE("predictions after training need batches that a program of fixed sizes takes") {
  Config config = parse_config(
      R"({"model": {"path": ")" + golden("program/fixed_heads.pt2") + R"("},
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

}  // namespace shardline::run_checks_test
